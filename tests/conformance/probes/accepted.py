"""Differences from Kafka that are meant, or known and listed as left out: a pattern of the
difference's line, and the reason.
"""

__all__ = ["ACCEPTED", "UNADVERTISED"]

# APIs that Kafka lists and kstore leaves out for now.
UNADVERTISED = {
    **dict.fromkeys((38, 39, 40, 41), "delegation tokens come with the security issue"),
    **dict.fromkeys((76, 77, 78, 79, *range(83, 88), 90, 91, 92), "share groups come later"),
}

ACCEPTED: dict[str, str] = {
    # Admin
    r"ApiVersions ranges v-1: .*(GetTelemetrySubscriptions|PushTelemetry)": (
        "Kafka lists telemetry once a receiver is configured; kstore's metrics are always one"
    ),
    r"ApiVersions client names v[\d,-]+: .*\.api_keys\.7[12]: Kafka None": (
        "Kafka lists telemetry once a receiver is configured; kstore's metrics are always one"
    ),
    r"DescribeQuorum v[\d,-]+: .*(log_end_offset|high_watermark|_timestamp): ": (
        "each broker's own times, and how far its metadata is"
    ),
    r"DescribeQuorum v2: .*nodes\[0\]\.listeners": (
        "kstore's controller is reached on the broker's own listeners"
    ),
    # ApiVersions and topics
    r"ApiVersions client names.*\.api_keys\.\d+: .*kstore None": (
        "kstore lists only the APIs that it serves"
    ),
    r"ApiVersions client names.*(finalized|supported)_features": (
        "Kafka's feature levels are those of KRaft, transactions v2 and the new group protocols"
    ),
    r"DescribeConfigs.*(offsets\.topic|transaction\.state\.log)\.(replication\.factor|min\.isr)"
    r" again.value: Kafka '[23]', kstore '1'": "one broker is the usual start: they default to 1",
    r"Metadata auto-creates": (
        "Kafka answers UNKNOWN_TOPIC_OR_PARTITION and creates the topic behind the answer; kstore "
        "has created it by then and says so, which saves the client a retry"
    ),
    r"(Metadata|DeleteTopics|CreatePartitions) v.* again: Kafka None": (
        "a topic that is asked twice is answered twice; Kafka drops the second"
    ),
    r"CreateTopics v\d+: .*validated\.topic_id": (
        "a topic that was only validated has no id; Kafka makes one up"
    ),
    r"DescribeTopicPartitions v0: .*probe-absent\.topic_authorized_operations": (
        "a topic that is not there has no authorized operations; Kafka lists all"
    ),
    r"(DeleteTopics|CreatePartitions|DescribeConfigs|IncrementalAlterConfigs).*\.error_message": (
        "whether an error comes with words"
    ),
    r"DescribeConfigs.*\.documentation: Kafka": "what a setting does is told in our own words",
    r"bent AlterConfigs, resources doubled.*Kafka 'no answer'": (
        "a resource that is named twice is refused; Kafka never answers"
    ),
    # Produce: [8] to [27] are the flaws of probes/data.py in their order, one less from version 13
    r"Produce v\d+: \[1[34]\]\..*(Kafka 0, kstore 87|Kafka \d+, kstore -1)": (
        "offset deltas that do not start at 0 are refused; Kafka looks only in compressed batches"
    ),
    r"Produce v\d+: \[(2\d|3[45])\]\..*base_offset: Kafka \d+, kstore \d+": (
        "behind batches that only Kafka took, the offsets are others"
    ),
    r"Produce v(\d|1[012]): \[33\]|Produce v13: \[32\]": (
        "a partition that is named twice in a request: kstore appends and answers both, Kafka one"
    ),
    r"Produce v\d+: \[2[0123]\]\..*Kafka -1, kstore 76": (
        "an unknown codec is UNSUPPORTED_COMPRESSION_TYPE; Kafka fails with UNKNOWN_SERVER_ERROR"
    ),
    r"Produce.*\.(log_start_offset|error_message|record_errors)": (
        "what goes with an error: Kafka sets the log start offset for some errors only"
    ),
    r"Produce, (idempotent|transactional) v.*log_append_time_ms: Kafka '<some>', kstore -1": (
        "a duplicate's answer has no append time with CreateTime; Kafka gives the batch's timestamp"
    ),
    r"OffsetCommit by member epoch v[\d,-]+: \[18\].*error_code: Kafka 0, kstore 113": (
        "KAFKA-19779 as its text says: a partition that the member does not own has no epoch that "
        "may commit; Kafka 4.3 lets the current epoch commit anything"
    ),
    # Fetch and offsets
    r"Fetch.*\.records: Kafka '[1-9]\d* bytes .*kstore '[1-9]\d* bytes": (
        "kstore cuts an answer between batches; Kafka sends the torn start of the next one too, "
        "which clients throw away"
    ),
    r"Fetch.*\.aborted_transactions: Kafka None, kstore \[\]": (
        "no aborted transactions: an empty list beside every error, not null beside some"
    ),
    r"Fetch v\d+: \[22\]": (
        "negative partition bytes count as 0; Kafka fails with UNKNOWN_SERVER_ERROR"
    ),
    r"ListOffsets v\d+: \[3\d\].*partitions: Kafka .*'error_code': 42": (
        "a partition that is asked twice is answered twice with INVALID_REQUEST, by Kafka once"
    ),
}
