"""DeleteRecords: moves the log start offset of partitions forward."""

from __future__ import annotations

from kstore.protocol.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
]


class DeleteRecordsPartition(Struct):
    """One entry of `partitions` in DeleteRecordsTopic."""

    partition_index: Int32 = field("0+", default=0)
    offset: Int64 = field("0+", default=0)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("2+", default=-1, tag=23200, ignorable=True)


class DeleteRecordsTopic(Struct):
    """One entry of `topics` in DeleteRecordsRequest."""

    name: String = field("0+", default="")
    partitions: list[DeleteRecordsPartition] = field("0+", default=[])


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    """Deletes the records before an offset; -1 means the high watermark."""

    topics: list[DeleteRecordsTopic] = field("0+", default=[])
    timeout_ms: Int32 = field("0+", default=0)


class DeleteRecordsPartitionResult(Struct):
    """One entry of `partitions` in DeleteRecordsTopicResult."""

    partition_index: Int32 = field("0+", default=0)
    low_watermark: Int64 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class DeleteRecordsTopicResult(Struct):
    """One entry of `topics` in DeleteRecordsResponse."""

    name: String = field("0+", default="")
    partitions: list[DeleteRecordsPartitionResult] = field("0+", default=[])


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    """The answer to DeleteRecordsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[DeleteRecordsTopicResult] = field("0+", default=[])
