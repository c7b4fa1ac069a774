"""Differences between kstore's clients and the Java clients."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "`partitioner.availability.timeout.ms`, `metadata.max.idle.ms` of the producer",
        "Have an effect.",
        "Known, without an effect. Records without a key avoid partitions without a leader and "
        "partitions where batches wait. Topics stay known once they are used.",
        "One rule without a time limit.",
    ),
    Difference(
        "`group.protocol` of consumers",
        "`classic` by default.",
        "`consumer` if the broker serves it, unless a setting of the classic protocol or "
        "`group.instance.id` is given.",
        "A new group has its first record after one heartbeat, not after "
        "`group.initial.rebalance.delay.ms`.",
    ),
    Difference(
        "Client-side assignors (classic protocol): racks of members",
        "Used.",
        "Known to the assignor, not used.",
        "Not built yet.",
    ),
    Difference(
        "A static member that closes",
        "Keeps its place until its session ends, or leaves if the application asks (KIP-1092).",
        "Keeps its place until its session ends.",
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
        "Only the time at which the token ends is read.",
        "The broker validates them.",
    ),
    Difference(
        "`kstore.clients.compat.confluent` (compared with confluent-kafka)",
        "Share consumers, `confluent_kafka.aio`, `SerializerBuilder`; `purge()` of what is in "
        "batches; librdkafka's counters in `stats_cb`; the principal and extensions of "
        "`oauth_cb`; `throttle_cb`.",
        "Missing or partial; `throttle_cb` is accepted and never called. See "
        "[coming from other clients](clients/coming-from.md).",
        "Not built yet.",
    ),
)
