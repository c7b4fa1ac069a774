"""Requests of producers and coordinators in transactions, and the markers that end them."""

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
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
    "EndTxnRequest",
    "EndTxnResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class AddPartitionsToTxnTopic(Struct):
    """One entry of `topics` in AddPartitionsToTxnTransaction."""

    name: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class AddPartitionsToTxnTransaction(Struct):
    """One entry of `transactions` in AddPartitionsToTxnRequest."""

    transactional_id: String = field("4+", default="")
    producer_id: Int64 = field("4+", default=0)
    producer_epoch: Int16 = field("4+", default=0)
    verify_only: Bool = field("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("4+", default=[])


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    """Adds partitions to a transaction; from version 4 on brokers send it for several transactions
    (KIP-890).
    """

    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default=[])
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default=[])


class AddPartitionsToTxnPartitionResult(Struct):
    """One entry of `results_by_partition` in AddPartitionsToTxnTopicResult."""

    partition_index: Int32 = field("0+", default=0)
    partition_error_code: Int16 = field("0+", default=0)


class AddPartitionsToTxnTopicResult(Struct):
    """One entry of `topic_results` in AddPartitionsToTxnResult."""

    name: String = field("0+", default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field("0+", default=[])


class AddPartitionsToTxnResult(Struct):
    """One entry of `results_by_transaction` in AddPartitionsToTxnResponse."""

    transactional_id: String = field("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+", default=[])


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    """The answer to AddPartitionsToTxnRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default=[])


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    """Adds the offsets of a group to a transaction."""

    transactional_id: String = field("0+", default="")
    producer_id: Int64 = field("0+", default=0)
    producer_epoch: Int16 = field("0+", default=0)
    group_id: String = field("0+", default="")


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    """The answer to AddOffsetsToTxnRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    """Commits or aborts a transaction."""

    transactional_id: String = field("0+", default="")
    producer_id: Int64 = field("0+", default=0)
    producer_epoch: Int16 = field("0+", default=0)
    committed: Bool = field("0+", default=False)


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    """The answer to EndTxnRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)


class WritableTxnMarkerTopic(Struct):
    """One entry of `topics` in WritableTxnMarker."""

    name: String = field("0+", default="")
    partition_indexes: list[Int32] = field("0+", default=[])


class WritableTxnMarker(Struct):
    """One entry of `markers` in WriteTxnMarkersRequest."""

    producer_id: Int64 = field("0+", default=0)
    producer_epoch: Int16 = field("0+", default=0)
    transaction_result: Bool = field("0+", default=False)
    topics: list[WritableTxnMarkerTopic] = field("0+", default=[])
    coordinator_epoch: Int32 = field("0+", default=0)
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    """Sent by a transaction coordinator: writes the marker that ends a transaction."""

    markers: list[WritableTxnMarker] = field("0+", default=[])


class WritableTxnMarkerPartitionResult(Struct):
    """One entry of `partitions` in WritableTxnMarkerTopicResult."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class WritableTxnMarkerTopicResult(Struct):
    """One entry of `topics` in WritableTxnMarkerResult."""

    name: String = field("0+", default="")
    partitions: list[WritableTxnMarkerPartitionResult] = field("0+", default=[])


class WritableTxnMarkerResult(Struct):
    """One entry of `markers` in WriteTxnMarkersResponse."""

    producer_id: Int64 = field("0+", default=0)
    topics: list[WritableTxnMarkerTopicResult] = field("0+", default=[])


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    """The answer to WriteTxnMarkersRequest."""

    markers: list[WritableTxnMarkerResult] = field("0+", default=[])


class TxnOffsetCommitRequestPartition(Struct):
    """One entry of `partitions` in TxnOffsetCommitRequestTopic."""

    partition_index: Int32 = field("0+", default=0)
    committed_offset: Int64 = field("0+", default=0)
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: String | None = field("0+", default="", nullable="0+")
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("3+", default=-1, tag=23200, ignorable=True)


class TxnOffsetCommitRequestTopic(Struct):
    """One entry of `topics` in TxnOffsetCommitRequest."""

    name: String = field("0+", default="")
    partitions: list[TxnOffsetCommitRequestPartition] = field("0+", default=[])


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    """Commits offsets for a group as part of a transaction."""

    transactional_id: String = field("0+", default="")
    group_id: String = field("0+", default="")
    producer_id: Int64 = field("0+", default=0)
    producer_epoch: Int16 = field("0+", default=0)
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = field("0+", default=[])


class TxnOffsetCommitResponsePartition(Struct):
    """One entry of `partitions` in TxnOffsetCommitResponseTopic."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class TxnOffsetCommitResponseTopic(Struct):
    """One entry of `topics` in TxnOffsetCommitResponse."""

    name: String = field("0+", default="")
    partitions: list[TxnOffsetCommitResponsePartition] = field("0+", default=[])


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    """The answer to TxnOffsetCommitRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field("0+", default=[])
