"""The table of topic configs: Kafka's names, types and defaults, and the broker configs that set
each default.

All of Kafka's topic configs are here, and kstore's own. Configs without effect say "No effect
here" and why. no_effect.py has the broker configs without effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from kstore.config.definition import (
    MAX_INT,
    MAX_LONG,
    ConfigDef,
    ConfigType,
    Importance,
    at_least,
    between,
    between_or,
    each_one_of,
    one_of,
    replica_list,
)

__all__ = ["COUNT_REQUIRED", "INTERNAL_SEGMENT_BYTES", "LEAST_PRODUCER_ID", "MIRROR",
           "ORDERED_EXPANSION", "TOPIC_CONFIGS", "is_on", "least_producer_id"]  # fmt: skip

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_DOUBLE, _STRING, _LIST = ConfigType.DOUBLE, ConfigType.STRING, ConfigType.LIST
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000

COUNT_REQUIRED = "kstore.partition.count.required"
ORDERED_EXPANSION = "kstore.ordered.expansion"
MIRROR = "kstore.mirror"
LEAST_PRODUCER_ID = "kstore.least.producer.id"

_NO_REMOTE = "No effect here: there is no tiered storage."

_ROWS = (
    ConfigDef(
        "cleanup.policy", _LIST, ("delete",),
        "What happens to old data: delete removes whole segments by age and size; compact keeps "
        "the last record of each key.",
        Importance.HIGH, each_one_of("compact", "delete"), (("log.cleanup.policy", 1),),
    ),
    ConfigDef(
        "compression.type", _STRING, "producer",
        "The codec in which batches are stored. producer: the codec that the producer used.",
        Importance.MEDIUM, one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        (("compression.type", 1),),
    ),
    ConfigDef(
        "compression.gzip.level", _INT, -1,
        "The gzip level, if the broker compresses because of compression.type. -1: gzip's default.",
        Importance.MEDIUM, between_or(1, 9, -1), (("compression.gzip.level", 1),),
    ),
    ConfigDef(
        "compression.lz4.level", _INT, 9,
        "The lz4 level, if the broker compresses because of compression.type.",
        Importance.MEDIUM, between(1, 17), (("compression.lz4.level", 1),),
    ),
    ConfigDef(
        "compression.zstd.level", _INT, 3,
        "The zstd level, if the broker compresses because of compression.type.",
        Importance.MEDIUM, between(-131_072, 22), (("compression.zstd.level", 1),),
    ),
    ConfigDef(
        "delete.retention.ms", _LONG, _DAY_MS,
        "How long a compacted log keeps a tombstone, so that a reader that starts at the "
        "beginning still sees the deletion.",
        Importance.MEDIUM, at_least(0), (("log.cleaner.delete.retention.ms", 1),),
    ),
    ConfigDef(
        "file.delete.delay.ms", _LONG, 60_000,
        "How long the file of a deleted segment stays on disk under another name, for readers "
        "that still use it.",
        Importance.LOW, at_least(0), (("log.segment.delete.delay.ms", 1),),
    ),
    ConfigDef(
        "flush.messages", _LONG, MAX_LONG,
        "Force data to disk after this many records.",
        Importance.LOW, at_least(1), (("log.flush.interval.messages", 1),),
    ),
    ConfigDef(
        "flush.ms", _LONG, MAX_LONG,
        "Force data to disk when the oldest unforced record reaches this age.",
        Importance.LOW, at_least(0),
        (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    ),
    ConfigDef(
        "index.interval.bytes", _INT, 4096,
        "The number of bytes of log between two entries of the offset index.",
        Importance.LOW, at_least(0), (("log.index.interval.bytes", 1),),
    ),
    ConfigDef(
        "max.compaction.lag.ms", _LONG, MAX_LONG,
        "The age at which a record must be compacted.",
        Importance.LOW, at_least(1), (("log.cleaner.max.compaction.lag.ms", 1),),
    ),
    ConfigDef(
        "max.message.bytes", _INT, 1_048_588,
        "The maximum size of a record batch, in bytes as sent.",
        Importance.MEDIUM, at_least(0), (("message.max.bytes", 1),),
    ),
    ConfigDef(
        "message.timestamp.after.max.ms", _LONG, _HOUR_MS,
        "The maximum time by which a record's timestamp is ahead of the broker's clock.",
        Importance.MEDIUM, at_least(0), (("log.message.timestamp.after.max.ms", 1),),
    ),
    ConfigDef(
        "message.timestamp.before.max.ms", _LONG, MAX_LONG,
        "The maximum time by which a record's timestamp is behind the broker's clock.",
        Importance.MEDIUM, at_least(0), (("log.message.timestamp.before.max.ms", 1),),
    ),
    ConfigDef(
        "message.timestamp.type", _STRING, "CreateTime",
        "The source of a record's timestamp: the producer (CreateTime) or the broker's clock at "
        "append (LogAppendTime).",
        Importance.MEDIUM, one_of("CreateTime", "LogAppendTime"),
        (("log.message.timestamp.type", 1),),
    ),
    ConfigDef(
        "min.cleanable.dirty.ratio", _DOUBLE, 0.5,
        "The share of a log's bytes that must be uncompacted before compaction starts.",
        Importance.MEDIUM, between(0, 1), (("log.cleaner.min.cleanable.ratio", 1),),
    ),
    ConfigDef(
        "min.compaction.lag.ms", _LONG, 0,
        "Records younger than this are not compacted.",
        Importance.MEDIUM, at_least(0), (("log.cleaner.min.compaction.lag.ms", 1),),
    ),
    ConfigDef(
        "min.insync.replicas", _INT, 1,
        "The number of in-sync replicas that a write with acks=all needs. With fewer, it is "
        "refused.",
        Importance.MEDIUM, at_least(1), (("min.insync.replicas", 1),),
    ),
    ConfigDef(
        "preallocate", _BOOLEAN, False,
        "Whether to allocate a new segment's full size on disk when it is created.",
        Importance.LOW, None, (("log.preallocate", 1),),
    ),
    ConfigDef(
        "retention.bytes", _LONG, -1,
        "The size of a partition above which its oldest segments are deleted. -1: no limit.",
        Importance.MEDIUM, at_least(-1), (("log.retention.bytes", 1),),
    ),
    ConfigDef(
        "retention.ms", _LONG, 7 * _DAY_MS,
        "The age at which a segment is deleted. -1: never.",
        Importance.MEDIUM, at_least(-1),
        (
            ("log.retention.ms", 1),
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ),
    ),
    ConfigDef(
        "segment.bytes", _INT, 2**30,
        "The size at which a new segment is started.",
        Importance.MEDIUM, at_least(2**20), (("log.segment.bytes", 1),),
    ),
    ConfigDef(
        "segment.index.bytes", _INT, 10 * 2**20,
        "The size of the offset index at which a new segment is started.",
        Importance.LOW, at_least(4), (("log.index.size.max.bytes", 1),),
    ),
    ConfigDef(
        "segment.jitter.ms", _LONG, 0,
        "The maximum random time that is subtracted from segment.ms, so that many logs do "
        "not start new segments at once.",
        Importance.MEDIUM, at_least(0),
        (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    ),
    ConfigDef(
        "segment.ms", _LONG, 7 * _DAY_MS,
        "The age at which a new segment is started even if the old one is not full.",
        Importance.MEDIUM, at_least(1), (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    ),
    ConfigDef(
        "unclean.leader.election.enable", _BOOLEAN, False,
        "Whether a replica that is not in sync can become leader if no other is left. Records can "
        "be lost.",
        Importance.MEDIUM, None, (("unclean.leader.election.enable", 1),),
    ),
    ConfigDef(
        "leader.replication.throttled.replicas", _LIST, (),
        "The replicas, each as partition:broker, or * for all, to which "
        "leader.replication.throttled.rate applies while followers are behind.",
        Importance.MEDIUM, replica_list(),
    ),
    ConfigDef(
        "follower.replication.throttled.replicas", _LIST, (),
        "The replicas, each as partition:broker, or * for all, to which "
        "follower.replication.throttled.rate applies while they are behind.",
        Importance.MEDIUM, replica_list(),
    ),
    ConfigDef(
        "remote.storage.enable", _BOOLEAN, False,
        "Whether old segments are moved to tiered storage. This is not supported: true is refused.",
        Importance.MEDIUM,
    ),
    ConfigDef(
        "remote.log.copy.disable", _BOOLEAN, False, _NO_REMOTE, Importance.MEDIUM
    ),
    ConfigDef(
        "remote.log.delete.on.disable", _BOOLEAN, False, _NO_REMOTE, Importance.MEDIUM
    ),
    ConfigDef(
        "local.retention.bytes", _LONG, -2, _NO_REMOTE,
        Importance.MEDIUM, at_least(-2), (("log.local.retention.bytes", 1),),
    ),
    ConfigDef(
        "local.retention.ms", _LONG, -2, _NO_REMOTE,
        Importance.MEDIUM, at_least(-2), (("log.local.retention.ms", 1),),
    ),
    ConfigDef(
        COUNT_REQUIRED, _BOOLEAN, False,
        "Whether producers must send the partition count over which they distribute keys "
        "(KIP-253). Producers that do not are refused, so that none continues with an old count "
        "after an expansion.",
        Importance.MEDIUM,
    ),
    ConfigDef(
        MIRROR, _BOOLEAN, False,
        "Whether the topic is an exact copy of a topic in another cluster (kstore replicate "
        "--exact). It takes that cluster's batches unchanged and refuses all producers until the "
        "switch.",
        Importance.MEDIUM,
    ),
    ConfigDef(
        LEAST_PRODUCER_ID, _LONG, 0,
        "The smallest producer id of this cluster's own producers in the topic. kstore replicate "
        "--exact sets it. Smaller ids belong to the cluster that the topic is or was copied from. "
        "They are refused in records of this cluster's producers, and larger ids in copied "
        "records.",
        Importance.LOW, at_least(0),
    ),
    ConfigDef(
        ORDERED_EXPANSION, _BOOLEAN, False,
        "Whether groups of the consumer protocol get a partition that was added only after they "
        "have committed all that was written to the others before (KIP-253). Keys then stay in "
        "order across an expansion even for consumers that do not know about it.",
        Importance.MEDIUM,
    ),
)  # fmt: skip

TOPIC_CONFIGS: dict[str, ConfigDef] = {row.name: row for row in _ROWS}

# Kafka also accepts this config and shows it only if it is set. It allows segments below the
# minimum of segment.bytes, for tests.
INTERNAL_SEGMENT_BYTES = ConfigDef(
    "internal.segment.bytes", _INT, None,
    "Like segment.bytes, which it overrides, but without its lower bound.",
    Importance.LOW, between(14, MAX_INT),
)  # fmt: skip


def is_on(configs: Mapping[str, str], name: str) -> bool:
    """Whether a topic config that is off by default is true for a topic."""
    return configs.get(name, "").strip().lower() == "true"


def least_producer_id(configs: Mapping[str, str]) -> int:
    """The smallest id of a topic's own producers; 0: the topic was never an exact copy."""
    return int(configs.get(LEAST_PRODUCER_ID, "0"))
