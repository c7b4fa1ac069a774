"""Settings of consumers under Kafka's names (ConsumerConfig)."""

from __future__ import annotations

from kstore.config.client.common_client_configs import API_TIMEOUT, IDLE, INTERCEPTORS, converter
from kstore.config.definition import (
    ConfigDef,
    ConfigType,
    Importance,
    at_least,
    matching,
    non_empty,
    one_of,
)

__all__ = ["CONSUMER_CONFIGS"]

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _LIST = ConfigType.STRING, ConfigType.LIST
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

_RESETS = r"earliest|latest|none|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"
CONSUMER_CONFIGS = (
    ConfigDef(
        "group.id", _STRING, None,
        "The consumer group to join, in which offsets are committed.",
        _HIGH,
    ),
    ConfigDef(
        "group.instance.id", _STRING, None,
        "Makes the consumer a static member, which keeps its partitions across a restart.",
        _MEDIUM, non_empty(),
    ),
    ConfigDef(
        "group.protocol", _STRING, "consumer",
        "The group protocol: consumer (KIP-848) or classic. If not set, it is classic when the "
        "broker does not serve the consumer protocol, or when a setting of the classic protocol "
        "or group.instance.id is set.",
        _HIGH, one_of("classic", "consumer", any_case=True),
    ),
    ConfigDef(
        "group.remote.assignor", _STRING, None,
        "The server-side assignor (consumer protocol): uniform or range; by default the broker's "
        "first.",
        _MEDIUM,
    ),
    ConfigDef(
        "partition.assignment.strategy", _LIST, ("range", "cooperative-sticky"),
        "The assignors that this member supports (classic protocol), in order of preference: "
        "range, roundrobin, sticky, cooperative-sticky, or Kafka's class names.",
        _MEDIUM, non_empty(),
    ),
    ConfigDef(
        "session.timeout.ms", _INT, 45_000,
        "A member that has been silent for this long is removed (classic protocol).",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "heartbeat.interval.ms", _INT, 3_000,
        "The time between heartbeats (classic protocol).",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "max.poll.interval.ms", _INT, 300_000,
        "A member that does not poll for this long leaves its group.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "max.poll.records", _INT, 500,
        "The maximum number of records that one poll returns.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "enable.auto.commit", _BOOLEAN, True,
        "Whether to commit what poll returned, in the background.",
        _MEDIUM,
    ),
    ConfigDef(
        "auto.commit.interval.ms", _INT, 5_000, "The time between such commits.", _LOW, at_least(0)
    ),
    ConfigDef(
        "auto.offset.reset", _STRING, "latest",
        "Where to start without a valid committed offset: earliest, latest, none (an error), or "
        "by_duration:P1D and the like (that long ago).",
        _MEDIUM, matching(_RESETS, "earliest, latest, none or by_duration:<ISO 8601 duration>"),
    ),
    ConfigDef(
        "isolation.level", _STRING, "read_uncommitted",
        "read_committed skips records of transactions that were not committed.",
        _MEDIUM, one_of("read_committed", "read_uncommitted"),
    ),
    ConfigDef(
        "fetch.min.bytes", _INT, 1, "The minimum number of bytes that a broker waits for before "
                                    "it responds.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "fetch.max.wait.ms", _INT, 500,
        "The maximum time that a broker waits for fetch.min.bytes.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "fetch.max.bytes", _INT, 52_428_800,
        "The maximum number of bytes in a response. A first batch that is larger is still "
        "returned.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "max.partition.fetch.bytes", _INT, 1_048_576,
        "The maximum number of bytes of one partition in a response. A first batch that is larger "
        "is still returned.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "kstore.fetch.ahead.bytes", _INT, -1,
        "The most bytes that are fetched ahead of poll. -1: the same as fetch.max.bytes.",
        _MEDIUM, at_least(-1),
    ),
    ConfigDef("check.crcs", _BOOLEAN, True, "Whether to verify the checksums of batches."),
    ConfigDef(
        "client.rack", _STRING, "",
        "The rack of this consumer; it reads from a replica in the same rack (KIP-392).",
    ),
    ConfigDef(
        "allow.auto.create.topics", _BOOLEAN, True,
        "Whether subscribing to a topic that does not exist creates it, if the brokers' settings "
        "allow that.",
        _MEDIUM,
    ),
    ConfigDef(
        "exclude.internal.topics", _BOOLEAN, True, "Whether patterns skip internal topics.", _MEDIUM
    ),
    ConfigDef(
        "consumer.timeout.ms", _LONG, -1,
        "Iteration ends after this long without a record; -1: never.",
        _LOW, at_least(-1),
    ),
    ConfigDef("connections.max.idle.ms", _LONG, 540_000, IDLE, _MEDIUM),
    ConfigDef(
        "kstore.kip253.enable", _BOOLEAN, True,
        "Whether to read a new partition of a topic that has grown only after all that was "
        "written before it (KIP-253).",
    ),
    API_TIMEOUT,
    INTERCEPTORS,
    converter("key.deserializer", "creates an object from the bytes of a key"),
    converter("value.deserializer", "creates an object from the bytes of a value"),
)  # fmt: skip
