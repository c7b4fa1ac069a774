"""ShareFetch (KIP-932): acquires records in a share session, and acknowledges earlier ones."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "AcquiredRecords",
    "FetchPartition",
    "FetchTopic",
    "ForgottenTopic",
    "ShareFetchRequest",
    "ShareFetchRequestAcknowledgementBatch",
    "ShareFetchResponse",
    "ShareFetchResponseLeaderIdAndEpoch",
    "ShareFetchResponseNodeEndpoint",
    "ShareFetchResponsePartitionData",
    "ShareFetchableTopicResponse",
]


class ShareFetchRequestAcknowledgementBatch(Struct):
    """One entry of `acknowledgement_batches` in FetchPartition."""

    first_offset: Int64 = field("0+", default=0)
    last_offset: Int64 = field("0+", default=0)
    acknowledge_types: list[Int8] = field("0+", default=[])


class FetchPartition(Struct):
    """One entry of `partitions` in FetchTopic."""

    partition_index: Int32 = field("0+", default=0)
    partition_max_bytes: Int32 = field("0", default=0)
    acknowledgement_batches: list[ShareFetchRequestAcknowledgementBatch] = field("0+", default=[])


class FetchTopic(Struct):
    """One entry of `topics` in ShareFetchRequest."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[FetchPartition] = field("0+", default=[])


class ForgottenTopic(Struct):
    """One entry of `forgotten_topics_data` in ShareFetchRequest."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    """Acquires records, and acknowledges earlier ones."""

    group_id: String | None = field("0+", default=None, nullable="0+")
    member_id: String | None = field("0+", default="", nullable="0+")
    share_session_epoch: Int32 = field("0+", default=0)
    max_wait_ms: Int32 = field("0+", default=0)
    min_bytes: Int32 = field("0+", default=0)
    max_bytes: Int32 = field("0+", default=0x7FFFFFFF)
    max_records: Int32 = field("1+", default=0)
    batch_size: Int32 = field("1+", default=0)
    share_acquire_mode: Int8 = field("2+", default=0, ignorable=True)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[FetchTopic] = field("0+", default=[])
    forgotten_topics_data: list[ForgottenTopic] = field("0+", default=[])


class ShareFetchResponseLeaderIdAndEpoch(Struct):
    """The field `current_leader` of ShareFetchResponsePartitionData."""

    leader_id: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)


class AcquiredRecords(Struct):
    """One entry of `acquired_records` in ShareFetchResponsePartitionData."""

    first_offset: Int64 = field("0+", default=0)
    last_offset: Int64 = field("0+", default=0)
    delivery_count: Int16 = field("0+", default=0)


class ShareFetchResponsePartitionData(Struct):
    """One entry of `partitions` in ShareFetchableTopicResponse."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    acknowledge_error_code: Int16 = field("0+", default=0)
    acknowledge_error_message: String | None = field("0+", default=None, nullable="0+")
    current_leader: ShareFetchResponseLeaderIdAndEpoch = field(
        "0+", default_factory=ShareFetchResponseLeaderIdAndEpoch
    )
    records: Records | None = field("0+", default=None, nullable="0")
    acquired_records: list[AcquiredRecords] = field("0+", default=[])


class ShareFetchableTopicResponse(Struct):
    """One entry of `responses` in ShareFetchResponse."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[ShareFetchResponsePartitionData] = field("0+", default=[])


class ShareFetchResponseNodeEndpoint(Struct):
    """One entry of `node_endpoints` in ShareFetchResponse."""

    node_id: Int32 = field("0+", default=0)
    host: String = field("0+", default="")
    port: Int32 = field("0+", default=0)
    rack: String | None = field("0+", default=None, nullable="0+")


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    """The answer to ShareFetchRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    acquisition_lock_timeout_ms: Int32 = field("1+", default=0)
    responses: list[ShareFetchableTopicResponse] = field("0+", default=[])
    node_endpoints: list[ShareFetchResponseNodeEndpoint] = field("0+", default=[])
