"""Settings of producers under Kafka's names (ProducerConfig)."""

from __future__ import annotations

from kstore.config.client.common_client_configs import IDLE, INTERCEPTORS, RETRIES, converter
from kstore.config.definition import (
    ConfigDef,
    ConfigType,
    Importance,
    at_least,
    between,
    between_or,
    non_empty,
    one_of,
)

__all__ = ["PRODUCER_CONFIGS"]

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _CLASS = ConfigType.STRING, ConfigType.CLASS
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

PRODUCER_CONFIGS = (
    ConfigDef(
        "acks", _STRING, "all",
        "Which replicas must have a record before it counts as delivered: all in-sync replicas "
        "(all or -1), the leader (1), or none (0).",
        _LOW, one_of("all", "-1", "0", "1"),
    ),
    ConfigDef(
        "enable.idempotence", _BOOLEAN, True,
        "Whether each record is written exactly once and in order despite retries. Needs "
        "acks=all. With other acks it is off unless it is set explicitly.",
        _LOW,
    ),
    ConfigDef(
        "transactional.id", _STRING, None,
        "The id that a transactional producer keeps across restarts. Transactions need it.",
        _LOW, non_empty(),
    ),
    ConfigDef(
        "transaction.timeout.ms", _INT, 60_000,
        "The coordinator aborts a transaction that has been open for this long.",
    ),
    ConfigDef(
        "batch.size", _INT, 131_072,
        "The size of a batch, in bytes before compression. Kafka's default is 16,384, because its "
        "producer allocates a batch's memory at once. kstore's memory grows with the records, and "
        "larger batches cost clients and brokers less per record.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "linger.ms", _LONG, 5,
        "How long a batch waits for more records. If it is not set, a batch that a caller waits "
        "for (result, await) is sent at once.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "buffer.memory", _LONG, 33_554_432,
        "The maximum number of bytes of records that wait to be sent. At the limit, send blocks.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "max.block.ms", _LONG, 60_000,
        "How long send waits for metadata and for buffer.memory, and how long transaction calls "
        "wait for a response.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "max.request.size", _INT, 1_048_576,
        "The maximum size of a request in bytes, and so of a record.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "delivery.timeout.ms", _INT, 120_000,
        "The time after send by which a record is delivered or has failed. It must not be less "
        "than linger.ms plus request.timeout.ms.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "max.in.flight.requests.per.connection", _INT, 5,
        "The maximum number of requests in flight to one broker. With idempotence, at most 5.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "compression.type", _STRING, "none", "The codec that compresses batches.",
        _HIGH, one_of("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    ConfigDef(
        "compression.gzip.level", _INT, -1, "From 1 (fast) to 9 (small); -1 is gzip's default.",
        _MEDIUM, between_or(1, 9, -1),
    ),
    ConfigDef(
        "compression.lz4.level", _INT, 9, "From 1 (fast) to 17 (small).", _MEDIUM, between(1, 17)
    ),
    ConfigDef(
        "compression.zstd.level", _INT, 3, "From -131072 (fast) to 22 (small).",
        _MEDIUM, between(-131_072, 22),
    ),
    ConfigDef(
        "partitioner.class", _CLASS, None,
        "How a record's partition is chosen: murmur2 (the default: by key as in Java, without a "
        "key sticky), sticky (ignores keys), roundrobin, ordered (by key, and stable when "
        "partitions are added, KIP-253), or a function of (topic, key, value, partition count).",
        _MEDIUM,
    ),
    ConfigDef(
        "partitioner.ignore.keys", _BOOLEAN, False,
        "Whether records are spread as if they had no keys.",
        _MEDIUM,
    ),
    ConfigDef(
        "partitioner.adaptive.partitioning.enable", _BOOLEAN, True,
        "Whether records without keys go more often to brokers that are faster.",
    ),
    ConfigDef(
        "partitioner.availability.timeout.ms", _LONG, 0,
        "No effect here: records without a key avoid partitions without a leader and partitions "
        "with waiting batches.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "metadata.max.idle.ms", _LONG, 300_000,
        "No effect here: the producer keeps the metadata of topics that it has used.",
        _LOW, at_least(5_000),
    ),
    ConfigDef("connections.max.idle.ms", _LONG, 540_000, IDLE, _MEDIUM),
    ConfigDef(
        "kstore.kip253.enable", _BOOLEAN, True,
        "Whether to send the partition count over which keys were distributed, so that a topic "
        "that has grown keeps the order of its keys (KIP-253).",
    ),
    ConfigDef(
        "kstore.kip359.enable", _BOOLEAN, True,
        "Whether to send the leader epoch, so that a leader that has been replaced accepts "
        "nothing (KIP-359).",
    ),
    ConfigDef(
        "kstore.auto.create.topics", _BOOLEAN, True,
        "Whether writing to a topic that does not exist creates it, if the brokers' settings "
        "allow that.",
    ),
    RETRIES,
    INTERCEPTORS,
    converter("key.serializer", "creates the bytes of a key"),
    converter("value.serializer", "creates the bytes of a value"),
)  # fmt: skip
