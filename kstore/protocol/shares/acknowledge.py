"""ShareAcknowledge (KIP-932): acknowledges acquired records without fetching."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
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
    "AcknowledgePartition",
    "AcknowledgeTopic",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeRequestAcknowledgementBatch",
    "ShareAcknowledgeResponse",
    "ShareAcknowledgeResponseLeaderIdAndEpoch",
    "ShareAcknowledgeResponseNodeEndpoint",
    "ShareAcknowledgeResponsePartitionData",
    "ShareAcknowledgeTopicResponse",
]


class ShareAcknowledgeRequestAcknowledgementBatch(Struct):
    """One entry of `acknowledgement_batches` in AcknowledgePartition."""

    first_offset: Int64 = field("0+", default=0)
    last_offset: Int64 = field("0+", default=0)
    acknowledge_types: list[Int8] = field("0+", default=[])


class AcknowledgePartition(Struct):
    """One entry of `partitions` in AcknowledgeTopic."""

    partition_index: Int32 = field("0+", default=0)
    acknowledgement_batches: list[ShareAcknowledgeRequestAcknowledgementBatch] = field(
        "0+", default=[]
    )


class AcknowledgeTopic(Struct):
    """One entry of `topics` in ShareAcknowledgeRequest."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[AcknowledgePartition] = field("0+", default=[])


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    """Acknowledges acquired records without fetching more."""

    group_id: String | None = field("0+", default=None, nullable="0+")
    member_id: String | None = field("0+", default="", nullable="0+")
    share_session_epoch: Int32 = field("0+", default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[AcknowledgeTopic] = field("0+", default=[])


class ShareAcknowledgeResponseLeaderIdAndEpoch(Struct):
    """The field `current_leader` of ShareAcknowledgeResponsePartitionData."""

    leader_id: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)


class ShareAcknowledgeResponsePartitionData(Struct):
    """One entry of `partitions` in ShareAcknowledgeTopicResponse."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    current_leader: ShareAcknowledgeResponseLeaderIdAndEpoch = field(
        "0+", default_factory=ShareAcknowledgeResponseLeaderIdAndEpoch
    )


class ShareAcknowledgeTopicResponse(Struct):
    """One entry of `responses` in ShareAcknowledgeResponse."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[ShareAcknowledgeResponsePartitionData] = field("0+", default=[])


class ShareAcknowledgeResponseNodeEndpoint(Struct):
    """One entry of `node_endpoints` in ShareAcknowledgeResponse."""

    node_id: Int32 = field("0+", default=0)
    host: String = field("0+", default="")
    port: Int32 = field("0+", default=0)
    rack: String | None = field("0+", default=None, nullable="0+")


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    """The answer to ShareAcknowledgeRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field("0+", default=[])
    node_endpoints: list[ShareAcknowledgeResponseNodeEndpoint] = field("0+", default=[])
