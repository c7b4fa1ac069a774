"""DescribeLogDirs and AlterReplicaLogDirs (KIP-113): the log dirs of replicas."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "AlterReplicaLogDir",
    "AlterReplicaLogDirPartitionResult",
    "AlterReplicaLogDirTopic",
    "AlterReplicaLogDirTopicResult",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
]


class DescribableLogDirTopic(Struct):
    """One entry of `topics` in DescribeLogDirsRequest."""

    topic: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    """Asks for the replicas in a broker's log dirs; null topics mean all."""

    topics: list[DescribableLogDirTopic] | None = field("0+", default=[], nullable="0+")


class DescribeLogDirsPartition(Struct):
    """One entry of `partitions` in DescribeLogDirsTopic."""

    partition_index: Int32 = field("0+", default=0)
    partition_size: Int64 = field("0+", default=0)
    offset_lag: Int64 = field("0+", default=0)
    is_future_key: Bool = field("0+", default=False)


class DescribeLogDirsTopic(Struct):
    """One entry of `topics` in DescribeLogDirsResult."""

    name: String = field("0+", default="")
    partitions: list[DescribeLogDirsPartition] = field("0+", default=[])


class DescribeLogDirsResult(Struct):
    """One entry of `results` in DescribeLogDirsResponse."""

    error_code: Int16 = field("0+", default=0)
    log_dir: String = field("0+", default="")
    topics: list[DescribeLogDirsTopic] = field("0+", default=[])
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: Bool = field("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    """The answer to DescribeLogDirsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field("0+", default=[])


class AlterReplicaLogDirTopic(Struct):
    """One entry of `topics` in AlterReplicaLogDir."""

    name: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class AlterReplicaLogDir(Struct):
    """One entry of `dirs` in AlterReplicaLogDirsRequest."""

    path: String = field("0+", default="")
    topics: list[AlterReplicaLogDirTopic] = field("0+", default=[])


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    """Moves replicas to other log dirs of the same broker."""

    dirs: list[AlterReplicaLogDir] = field("0+", default=[])


class AlterReplicaLogDirPartitionResult(Struct):
    """One entry of `partitions` in AlterReplicaLogDirTopicResult."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class AlterReplicaLogDirTopicResult(Struct):
    """One entry of `results` in AlterReplicaLogDirsResponse."""

    topic_name: String = field("0+", default="")
    partitions: list[AlterReplicaLogDirPartitionResult] = field("0+", default=[])


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    """The answer to AlterReplicaLogDirsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = field("0+", default=[])
