"""The table of topic configs: Kafka's names, types and defaults, and the broker configs that set
each default.

A row exists only for a setting that acts. Names that Kafka has and that can't matter here are in
ignored.py.
"""

from __future__ import annotations

from kstore.config.definition import (
    MAX_INT,
    MAX_LONG,
    ConfigDef,
    ConfigType,
    Importance,
    at_least,
    between,
    each_one_of,
    one_of,
)

__all__ = ["TOPIC_CONFIGS"]

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_DOUBLE, _STRING, _LIST = ConfigType.DOUBLE, ConfigType.STRING, ConfigType.LIST
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000

_ROWS = (
    ConfigDef(
        "cleanup.policy", _LIST, ("delete",),
        "What happens to old data: delete drops whole segments by age and size, compact keeps "
        "the last record of each key.",
        Importance.HIGH, each_one_of("delete", "compact"), (("log.cleanup.policy", 1),),
    ),
    ConfigDef(
        "compression.type", _STRING, "producer",
        "The codec that batches are stored in; producer keeps what the producer chose.",
        Importance.MEDIUM, one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        (("compression.type", 1),),
    ),
    ConfigDef(
        "delete.retention.ms", _LONG, _DAY_MS,
        "How long a compacted log keeps a tombstone, so that a reader from the start still sees "
        "the deletion.",
        Importance.MEDIUM, at_least(0), (("log.cleaner.delete.retention.ms", 1),),
    ),
    ConfigDef(
        "file.delete.delay.ms", _LONG, 60_000,
        "How long a removed segment's file stays on disk under another name, for readers that "
        "still hold it.",
        Importance.LOW, at_least(0), (("log.segment.delete.delay.ms", 1),),
    ),
    ConfigDef(
        "flush.messages", _LONG, MAX_LONG,
        "Force data to disk after this many records.",
        Importance.LOW, at_least(1), (("log.flush.interval.messages", 1),),
    ),
    ConfigDef(
        "flush.ms", _LONG, MAX_LONG,
        "Force data to disk when the oldest unforced record is this old.",
        Importance.LOW, at_least(0), (("log.flush.interval.ms", 1),),
    ),
    ConfigDef(
        "index.interval.bytes", _INT, 4096,
        "How many bytes of log lie between two entries of the offset index.",
        Importance.LOW, at_least(0), (("log.index.interval.bytes", 1),),
    ),
    ConfigDef(
        "max.compaction.lag.ms", _LONG, MAX_LONG,
        "A record is compacted at the latest when it is this old.",
        Importance.LOW, at_least(1), (("log.cleaner.max.compaction.lag.ms", 1),),
    ),
    ConfigDef(
        "max.message.bytes", _INT, 1_048_588,
        "The largest record batch that the log takes, as it is on the wire.",
        Importance.MEDIUM, at_least(0), (("message.max.bytes", 1),),
    ),
    ConfigDef(
        "message.timestamp.after.max.ms", _LONG, _HOUR_MS,
        "How far ahead of the broker's clock a record's timestamp may be.",
        Importance.MEDIUM, at_least(0), (("log.message.timestamp.after.max.ms", 1),),
    ),
    ConfigDef(
        "message.timestamp.before.max.ms", _LONG, MAX_LONG,
        "How far behind the broker's clock a record's timestamp may be.",
        Importance.MEDIUM, at_least(0), (("log.message.timestamp.before.max.ms", 1),),
    ),
    ConfigDef(
        "message.timestamp.type", _STRING, "CreateTime",
        "Whose time a record carries: the producer's (CreateTime) or the broker's at append "
        "(LogAppendTime).",
        Importance.MEDIUM, one_of("CreateTime", "LogAppendTime"),
        (("log.message.timestamp.type", 1),),
    ),
    ConfigDef(
        "min.cleanable.dirty.ratio", _DOUBLE, 0.5,
        "Compaction starts when this share of a log's bytes is not yet compacted.",
        Importance.MEDIUM, between(0, 1), (("log.cleaner.min.cleanable.ratio", 1),),
    ),
    ConfigDef(
        "min.compaction.lag.ms", _LONG, 0,
        "A record younger than this is not compacted.",
        Importance.MEDIUM, at_least(0), (("log.cleaner.min.compaction.lag.ms", 1),),
    ),
    ConfigDef(
        "min.insync.replicas", _INT, 1,
        "How many in-sync replicas an acks=all write needs; with fewer it is refused.",
        Importance.MEDIUM, at_least(1), (("min.insync.replicas", 1),),
    ),
    ConfigDef(
        "preallocate", _BOOLEAN, False,
        "Reserve a new segment's whole size on disk when it is created.",
        Importance.LOW, None, (("log.preallocate", 1),),
    ),
    ConfigDef(
        "retention.bytes", _LONG, -1,
        "The size above which a partition's oldest segments are deleted; -1 for no limit.",
        Importance.MEDIUM, at_least(-1), (("log.retention.bytes", 1),),
    ),
    ConfigDef(
        "retention.ms", _LONG, 7 * _DAY_MS,
        "The age at which a segment is deleted; -1 for never.",
        Importance.MEDIUM, at_least(-1),
        (
            ("log.retention.ms", 1),
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ),
    ),
    ConfigDef(
        "segment.bytes", _INT, 2**30,
        "The size at which a new segment is begun.",
        Importance.MEDIUM, between(14, MAX_INT), (("log.segment.bytes", 1),),
    ),
    ConfigDef(
        "segment.index.bytes", _INT, 10 * 2**20,
        "The size of the offset index at which a new segment is begun.",
        Importance.LOW, at_least(4), (("log.index.size.max.bytes", 1),),
    ),
    ConfigDef(
        "segment.ms", _LONG, 7 * _DAY_MS,
        "The age at which a new segment is begun even if the old one is not full.",
        Importance.MEDIUM, at_least(1), (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    ),
    ConfigDef(
        "unclean.leader.election.enable", _BOOLEAN, False,
        "Whether a replica that is not in sync may become leader when no other is left; it loses"
        " data.",
        Importance.MEDIUM, None, (("unclean.leader.election.enable", 1),),
    ),
)  # fmt: skip

TOPIC_CONFIGS: dict[str, ConfigDef] = {row.name: row for row in _ROWS}
