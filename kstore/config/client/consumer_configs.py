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
    ConfigDef("group.id", _STRING, None, "The consumer group to join and commit for.", _HIGH),
    ConfigDef(
        "group.instance.id", _STRING, None,
        "Makes the consumer a static member, which keeps its partitions over a restart.",
        _MEDIUM, non_empty(),
    ),
    ConfigDef(
        "group.protocol", _STRING, "consumer",
        "How the group is coordinated: consumer (KIP-848), or classic. Where it is not set and the"
        " broker does not serve the first, or a setting of the classic protocol or"
        " group.instance.id is set, it is classic.",
        _HIGH, one_of("classic", "consumer", any_case=True),
    ),
    ConfigDef(
        "group.remote.assignor", _STRING, None,
        "The coordinator's assignor (protocol consumer): uniform or range; by default its first.",
        _MEDIUM,
    ),
    ConfigDef(
        "partition.assignment.strategy", _LIST, ("range", "cooperative-sticky"),
        "Assignors that this member can do (protocol classic), best first: range, roundrobin,"
        " sticky, cooperative-sticky, or Kafka's class names.",
        _MEDIUM, non_empty(),
    ),
    ConfigDef(
        "session.timeout.ms", _INT, 45_000,
        "A member that was not heard for so long is out (protocol classic).",
        _HIGH,
    ),
    ConfigDef(
        "heartbeat.interval.ms", _INT, 3_000, "Time between heartbeats (protocol classic).", _HIGH
    ),
    ConfigDef(
        "max.poll.interval.ms", _INT, 300_000,
        "A member that does not poll for so long leaves its group.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "max.poll.records", _INT, 500, "Records that a poll returns at most.", _MEDIUM, at_least(1)
    ),
    ConfigDef(
        "enable.auto.commit", _BOOLEAN, True, "Commit what was polled, in the background.", _MEDIUM
    ),
    ConfigDef(
        "auto.commit.interval.ms", _INT, 5_000, "Time between such commits.", _LOW, at_least(0)
    ),
    ConfigDef(
        "auto.offset.reset", _STRING, "latest",
        "Where to read from without a usable offset: earliest, latest, none (an error), or"
        " by_duration:P1D and the like: from so long ago.",
        _MEDIUM, matching(_RESETS, "earliest, latest, none or by_duration:<ISO 8601 duration>"),
    ),
    ConfigDef(
        "isolation.level", _STRING, "read_uncommitted",
        "read_committed leaves out records of transactions that were not committed.",
        _MEDIUM, one_of("read_committed", "read_uncommitted"),
    ),
    ConfigDef(
        "fetch.min.bytes", _INT, 1, "Bytes that a broker waits for before it answers.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "fetch.max.wait.ms", _INT, 500, "How long it waits for them.", _LOW, at_least(0)
    ),
    ConfigDef(
        "fetch.max.bytes", _INT, 52_428_800,
        "Bytes of an answer; a larger first batch comes all the same.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "max.partition.fetch.bytes", _INT, 1_048_576,
        "Bytes of one partition in an answer; a larger first batch comes all the same.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "kstore.fetch.ahead.bytes", _INT, -1,
        "Bytes that may wait, fetched ahead of poll; beyond it no more is asked for. -1: as"
        " fetch.max.bytes.",
        _MEDIUM, at_least(-1),
    ),
    ConfigDef("check.crcs", _BOOLEAN, True, "Check the checksums of batches."),
    ConfigDef(
        "client.rack", _STRING, "",
        "Where this consumer stands; it reads from a replica of the same rack (KIP-392).",
    ),
    ConfigDef(
        "allow.auto.create.topics", _BOOLEAN, True,
        "Have brokers create topics that are subscribed to, if they are set to.",
        _MEDIUM,
    ),
    ConfigDef(
        "exclude.internal.topics", _BOOLEAN, True, "Patterns match no internal topics.", _MEDIUM
    ),
    ConfigDef(
        "consumer.timeout.ms", _LONG, -1,
        "Iteration ends after so long without a record; -1: never.",
        _LOW, at_least(-1),
    ),
    ConfigDef("connections.max.idle.ms", _LONG, 540_000, IDLE, _MEDIUM),
    ConfigDef(
        "kstore.kip253.enable", _BOOLEAN, True,
        "Read a new partition of a topic that has grown only when what was written before it is"
        " read (KIP-253).",
    ),
    API_TIMEOUT,
    INTERCEPTORS,
    converter("key.deserializer", "makes an object of a key's bytes"),
    converter("value.deserializer", "makes an object of a value's bytes"),
)  # fmt: skip
