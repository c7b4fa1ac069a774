"""Differences from Kafka that are meant: a pattern of the difference's line, and the reason."""

__all__ = ["ACCEPTED"]

ACCEPTED: dict[str, str] = {
    r"ApiVersions client names.*\.api_keys\.\d+: .*kstore None": (
        "kstore lists only the APIs that it serves"
    ),
    r"ApiVersions client names.*(finalized|supported)_features": (
        "Kafka's feature levels are those of KRaft, transactions v2 and the new group protocols"
    ),
    r"\.configs\.(compression\.\w+\.level|remote\.|local\.retention|segment\.jitter"
    r"|\w+\.replication\.throttled|errors\.deadletterqueue)": (
        "topic configs of features that kstore has not"
    ),
    r"Metadata auto-creates": (
        "Kafka answers UNKNOWN_TOPIC_OR_PARTITION and creates the topic behind the answer; kstore "
        "has created it by then and says so, which saves the client a retry"
    ),
    r"Metadata v.* again: Kafka None": (
        "a topic that is asked twice is answered twice; Kafka drops the second"
    ),
    r"Produce v\d+: \[1[34]\]\..*(Kafka 0, kstore 87|Kafka \d+, kstore -1)": (
        "offset deltas that do not start at 0 are refused; Kafka looks only in compressed batches"
    ),
    r"Produce v\d+: \[2[123]\]\..*Kafka -1, kstore 76": (
        "an unknown codec is UNSUPPORTED_COMPRESSION_TYPE; Kafka fails with UNKNOWN_SERVER_ERROR"
    ),
    r"Fetch v\d+: .*\.records: Kafka '[1-9]\d* bytes .*kstore '[1-9]\d* bytes": (
        "kstore cuts an answer between batches; Kafka sends the torn start of the next one too, "
        "which clients throw away"
    ),
}
