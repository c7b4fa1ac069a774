"""The requests of brokers to the share coordinator for the state of share-partitions: initialize,
read, write, delete, and read a summary (KIP-932; the count of completed deliveries is KIP-1226's).
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Int8,
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
    "DeletePartition",
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "DeleteTopic",
    "InitializePartition",
    "InitializeShareGroupStateRequest",
    "InitializeShareGroupStateResponse",
    "InitializeTopic",
    "PartitionResult",
    "ReadPartition",
    "ReadResult",
    "ReadShareGroupStateRequest",
    "ReadShareGroupStateResponse",
    "ReadShareGroupStateSummaryRequest",
    "ReadShareGroupStateSummaryResponse",
    "ReadTopic",
    "ReadTopicResult",
    "StateBatchRow",
    "SummaryResult",
    "SummaryTopicResult",
    "TopicResult",
    "WritePartition",
    "WriteShareGroupStateRequest",
    "WriteShareGroupStateResponse",
    "WriteTopic",
]


class StateBatchRow(Struct):
    """Offsets that have the same delivery state (0 available, 2 acknowledged, 4 archived)."""

    first_offset: Int64 = field("0+", default=0)
    last_offset: Int64 = field("0+", default=0)
    delivery_state: Int8 = field("0+", default=0)
    delivery_count: Int16 = field("0+", default=0)


class PartitionResult(Struct):
    """The result for one partition, in responses that contain no more."""

    partition: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")


class TopicResult(Struct):
    """The results for the partitions of one topic."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = field("0+", default=[])


class InitializePartition(Struct):
    """One partition of InitializeShareGroupState."""

    partition: Int32 = field("0+", default=0)
    state_epoch: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)


class InitializeTopic(Struct):
    """One topic of InitializeShareGroupState."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[InitializePartition] = field("0+", default=[])


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    """Initializes the state of share-partitions, or resets it with a higher state epoch."""

    group_id: String = field("0+", default="")
    topics: list[InitializeTopic] = field("0+", default=[])


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    """The answer to InitializeShareGroupStateRequest."""

    results: list[TopicResult] = field("0+", default=[])


class ReadPartition(Struct):
    """One partition of ReadShareGroupState and of ReadShareGroupStateSummary."""

    partition: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)


class ReadTopic(Struct):
    """One topic of ReadShareGroupState and of ReadShareGroupStateSummary."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[ReadPartition] = field("0+", default=[])


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    """The new leader of share-partitions, in a leader epoch, asks for their state."""

    group_id: String = field("0+", default="")
    topics: list[ReadTopic] = field("0+", default=[])


class ReadResult(Struct):
    """The state of one share-partition."""

    partition: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    state_epoch: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)
    state_batches: list[StateBatchRow] = field("0+", default=[])


class ReadTopicResult(Struct):
    """The state of one topic's share-partitions."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[ReadResult] = field("0+", default=[])


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    """The answer to ReadShareGroupStateRequest."""

    results: list[ReadTopicResult] = field("0+", default=[])


class WritePartition(Struct):
    """Changes of one share-partition; a start offset of -1 means no change."""

    partition: Int32 = field("0+", default=0)
    state_epoch: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[StateBatchRow] = field("0+", default=[])


class WriteTopic(Struct):
    """Changes of one topic's share-partitions."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[WritePartition] = field("0+", default=[])


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    """Changes the state of share-partitions."""

    group_id: String = field("0+", default="")
    topics: list[WriteTopic] = field("0+", default=[])


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    """The answer to WriteShareGroupStateRequest."""

    results: list[TopicResult] = field("0+", default=[])


class DeletePartition(Struct):
    """One partition of DeleteShareGroupState."""

    partition: Int32 = field("0+", default=0)


class DeleteTopic(Struct):
    """One topic of DeleteShareGroupState."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[DeletePartition] = field("0+", default=[])


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    """Deletes the state of share-partitions."""

    group_id: String = field("0+", default="")
    topics: list[DeleteTopic] = field("0+", default=[])


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    """The answer to DeleteShareGroupStateRequest."""

    results: list[TopicResult] = field("0+", default=[])


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    """Asks for the progress of share-partitions, without their batches."""

    group_id: String = field("0+", default="")
    topics: list[ReadTopic] = field("0+", default=[])


class SummaryResult(Struct):
    """The progress of one share-partition."""

    partition: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    state_epoch: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    start_offset: Int64 = field("0+", default=0)
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)


class SummaryTopicResult(Struct):
    """The progress of one topic's share-partitions."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[SummaryResult] = field("0+", default=[])


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    """The answer to ReadShareGroupStateSummaryRequest."""

    results: list[SummaryTopicResult] = field("0+", default=[])
