"""Share groups (KIP-932) as clients see them: membership, fetching, acknowledging."""

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
    "AcknowledgePartition",
    "AcknowledgeTopic",
    "AcquiredRecords",
    "DescribedGroup",
    "FetchPartition",
    "FetchTopic",
    "ForgottenTopic",
    "Member",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeRequestAcknowledgementBatch",
    "ShareAcknowledgeResponse",
    "ShareAcknowledgeResponseLeaderIdAndEpoch",
    "ShareAcknowledgeResponseNodeEndpoint",
    "ShareAcknowledgeResponsePartitionData",
    "ShareAcknowledgeTopicResponse",
    "ShareFetchRequest",
    "ShareFetchRequestAcknowledgementBatch",
    "ShareFetchResponse",
    "ShareFetchResponseLeaderIdAndEpoch",
    "ShareFetchResponseNodeEndpoint",
    "ShareFetchResponsePartitionData",
    "ShareFetchableTopicResponse",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupDescribeResponseAssignment",
    "ShareGroupDescribeResponseTopicPartitions",
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
    "ShareGroupHeartbeatResponseAssignment",
    "ShareGroupHeartbeatResponseTopicPartitions",
]


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    """Joins, stays in or leaves a share group."""

    group_id: String = field("0+", default="")
    member_id: String = field("0+", default="")
    member_epoch: Int32 = field("0+", default=0)
    rack_id: String | None = field("0+", default=None, nullable="0+")
    subscribed_topic_names: list[String] | None = field("0+", default=None, nullable="0+")


class ShareGroupHeartbeatResponseTopicPartitions(Struct):
    """One entry of `topic_partitions` in ShareGroupHeartbeatResponseAssignment."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ShareGroupHeartbeatResponseAssignment(Struct):
    """What `assignment` of ShareGroupHeartbeatResponse holds."""

    topic_partitions: list[ShareGroupHeartbeatResponseTopicPartitions] = field("0+", default=[])


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    """The answer to ShareGroupHeartbeatRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    member_id: String | None = field("0+", default=None, nullable="0+")
    member_epoch: Int32 = field("0+", default=0)
    heartbeat_interval_ms: Int32 = field("0+", default=0)
    assignment: ShareGroupHeartbeatResponseAssignment | None = field(
        "0+", default=None, nullable="0+"
    )


class ShareGroupDescribeRequest(Message, api_key=77, versions="1", flexible="0+"):
    """Asks for members and assignments of share groups."""

    group_ids: list[String] = field("0+", default=[])
    include_authorized_operations: Bool = field("0+", default=False)


class ShareGroupDescribeResponseTopicPartitions(Struct):
    """One entry of `topic_partitions` in ShareGroupDescribeResponseAssignment."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    topic_name: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class ShareGroupDescribeResponseAssignment(Struct):
    """What `assignment` of Member holds."""

    topic_partitions: list[ShareGroupDescribeResponseTopicPartitions] = field("0+", default=[])


class Member(Struct):
    """One entry of `members` in DescribedGroup."""

    member_id: String = field("0+", default="")
    rack_id: String | None = field("0+", default=None, nullable="0+")
    member_epoch: Int32 = field("0+", default=0)
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    subscribed_topic_names: list[String] = field("0+", default=[])
    assignment: ShareGroupDescribeResponseAssignment = field(
        "0+", default_factory=ShareGroupDescribeResponseAssignment
    )


class DescribedGroup(Struct):
    """One entry of `groups` in ShareGroupDescribeResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    group_id: String = field("0+", default="")
    group_state: String = field("0+", default="")
    group_epoch: Int32 = field("0+", default=0)
    assignment_epoch: Int32 = field("0+", default=0)
    assignor_name: String = field("0+", default="")
    members: list[Member] = field("0+", default=[])
    authorized_operations: Int32 = field("0+", default=-2147483648)


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    """The answer to ShareGroupDescribeRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribedGroup] = field("0+", default=[])


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
    """What `current_leader` of ShareFetchResponsePartitionData holds."""

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
    """What `current_leader` of ShareAcknowledgeResponsePartitionData holds."""

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
