"""CopyBatches, kstore's own API 25301: appends record batches that are the values of records to
other partitions, at given offsets (KIP-391), without a transfer through the client.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "CopyBatchesPartition",
    "CopyBatchesPartitionResult",
    "CopyBatchesRequest",
    "CopyBatchesResponse",
    "CopyBatchesSource",
    "CopyBatchesTopic",
    "CopyBatchesTopicResult",
]


class CopyBatchesSource(Struct):
    """Records of one partition, whose values are record batches (one or several), in the order in
    which they are to be copied. All of them must have this key; otherwise they are the wrong
    records.
    """

    topic: String = field("0+", default="")
    partition: Int32 = field("0+", default=0)
    key: Bytes = field("0+", default=b"")
    offsets: list[Int64] = field("0+", default=[])


class CopyBatchesPartition(Struct):
    """One entry of `partitions` in CopyBatchesTopic: the first batch gets this base offset and base
    sequence, and the other ones the following.
    """

    partition_index: Int32 = field("0+", default=0)
    current_leader_epoch: Int32 = field("0+", default=-1)
    base_offset: Int64 = field("0+", default=0)
    producer_id: Int64 = field("0+", default=-1)
    producer_epoch: Int16 = field("0+", default=-1)
    base_sequence: Int32 = field("0+", default=-1)
    sources: list[CopyBatchesSource] = field("0+", default=[])


class CopyBatchesTopic(Struct):
    """One entry of `topics` in CopyBatchesRequest; a topic id of zeros is not checked."""

    name: String = field("0+", default="")
    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[CopyBatchesPartition] = field("0+", default=[])


class CopyBatchesRequest(Message, api_key=25301, versions="0", flexible="0+"):
    """Asks leaders to append batches that are in records of partitions that they have."""

    timeout_ms: Int32 = field("0+", default=0)
    topics: list[CopyBatchesTopic] = field("0+", default=[])


class CopyBatchesPartitionResult(Struct):
    """One entry of `partitions` in CopyBatchesTopicResult: the number of records whose batches were
    appended, and which of the two sides failed with the next one, if any.
    """

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    source_error_code: Int16 = field("0+", default=0)
    copied: Int32 = field("0+", default=0)
    log_end_offset: Int64 = field("0+", default=-1)


class CopyBatchesTopicResult(Struct):
    """One entry of `topics` in CopyBatchesResponse."""

    name: String = field("0+", default="")
    partitions: list[CopyBatchesPartitionResult] = field("0+", default=[])


class CopyBatchesResponse(Message, api_key=25301, versions="0", flexible="0+"):
    """The answer to CopyBatchesRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[CopyBatchesTopicResult] = field("0+", default=[])
