"""ListOffsets and OffsetForLeaderEpoch: offsets by timestamp, and the end of a leader epoch."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "EpochEndOffset",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
]


class ListOffsetsPartition(Struct):
    """One entry of `partitions` in ListOffsetsTopic."""

    partition_index: Int32 = field("0+", default=0)
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64 = field("0+", default=0)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("6+", default=-1, tag=23200, ignorable=True)


class ListOffsetsTopic(Struct):
    """One entry of `topics` in ListOffsetsRequest."""

    name: String = field("0+", default="")
    partitions: list[ListOffsetsPartition] = field("0+", default=[])


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    """Asks for the offset at a timestamp; -1 is the end, -2 the start, -3 the largest timestamp."""

    replica_id: Int32 = field("0+", default=0)
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic] = field("0+", default=[])
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """One entry of `partitions` in ListOffsetsTopicResponse."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("6+", default=-1, tag=23200, ignorable=True)


class ListOffsetsTopicResponse(Struct):
    """One entry of `topics` in ListOffsetsResponse."""

    name: String = field("0+", default="")
    partitions: list[ListOffsetsPartitionResponse] = field("0+", default=[])


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    """The answer to ListOffsetsRequest."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field("0+", default=[])


class OffsetForLeaderPartition(Struct):
    """One entry of `partitions` in OffsetForLeaderTopic."""

    partition: Int32 = field("0+", default=0)
    current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: Int32 = field("0+", default=0)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("4+", default=-1, tag=23200, ignorable=True)
    # KIP-253, kstore only: the end of the visible records, without transaction markers after it.
    visible_only: Bool = field("4+", default=False, tag=25300, ignorable=True)


class OffsetForLeaderTopic(Struct):
    """One entry of `topics` in OffsetForLeaderEpochRequest."""

    topic: String = field("0+", default="")
    partitions: list[OffsetForLeaderPartition] = field("0+", default=[])


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    """Asks for the end offset of a leader epoch (KIP-101, KIP-320)."""

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field("0+", default=[])


class EpochEndOffset(Struct):
    """One entry of `partitions` in OffsetForLeaderTopicResult."""

    error_code: Int16 = field("0+", default=0)
    partition: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
    end_offset: Int64 = field("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    """One entry of `topics` in OffsetForLeaderEpochResponse."""

    topic: String = field("0+", default="")
    partitions: list[EpochEndOffset] = field("0+", default=[])


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    """The answer to OffsetForLeaderEpochRequest."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field("0+", default=[])
