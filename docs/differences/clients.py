"""Differences between kstore's clients and the Java clients."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "`partitioner.availability.timeout.ms`, `metadata.max.idle.ms` of the producer",
        "Have an effect.",
        "Accepted, without effect. Records without a key avoid partitions without a leader and "
        "partitions with waiting batches. The producer keeps the metadata of topics that it has "
        "used.",
        "One rule without a time limit.",
    ),
    Difference(
        "`group.protocol` of consumers",
        "`classic` by default.",
        "`consumer` if the broker supports it, unless `group.instance.id` or a setting of the "
        "classic protocol is set.",
        "A new group receives its first record after one heartbeat, not after "
        "`group.initial.rebalance.delay.ms`.",
    ),
    Difference(
        "Client-side assignors (classic protocol): racks of members",
        "Used.",
        "Passed to the assignor, but not used.",
        "Not built yet.",
    ),
    Difference(
        "A static member that closes",
        "Keeps its partitions until its session times out, or leaves if the application asks for "
        "it (KIP-1092).",
        "Keeps its partitions until its session times out.",
        "Not built yet.",
    ),
    Difference(
        "SASL login: callback handlers in Java, `sasl.login.class`",
        "Java classes.",
        "`sasl.login.callback.handler.class` is a Python callable.",
        "A Java class cannot be loaded.",
    ),
    Difference(
        "OAUTHBEARER tokens before they are sent",
        "Validated.",
        "Only the expiry time is read.",
        "The broker validates them.",
    ),
    Difference(
        "`kstore.clients.compat.confluent` (compared with confluent-kafka)",
        "Share consumers, `confluent_kafka.aio`, `SerializerBuilder`; `purge()` of messages in "
        "batches; librdkafka's counters in `stats_cb`; the principal and extensions of "
        "`oauth_cb`; `throttle_cb`.",
        "Missing or partial; `throttle_cb` is accepted and never called. See "
        "[coming from other clients](clients/coming-from.md).",
        "Not built yet.",
    ),
)
