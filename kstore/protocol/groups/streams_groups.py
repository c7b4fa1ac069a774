"""The streams group protocol of KIP-1071: heartbeat with topology, and description."""

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
    UInt16,
    field,
)

__all__ = [
    "Assignment",
    "CopartitionGroup",
    "DescribedGroup",
    "EndpointToPartitions",
    "Member",
    "Status",
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
    "StreamsGroupDescribeResponseEndpoint",
    "StreamsGroupDescribeResponseKeyValue",
    "StreamsGroupDescribeResponseSubtopology",
    "StreamsGroupDescribeResponseTaskIds",
    "StreamsGroupDescribeResponseTaskOffset",
    "StreamsGroupDescribeResponseTopicInfo",
    "StreamsGroupDescribeResponseTopology",
    "StreamsGroupHeartbeatRequest",
    "StreamsGroupHeartbeatRequestEndpoint",
    "StreamsGroupHeartbeatRequestKeyValue",
    "StreamsGroupHeartbeatRequestSubtopology",
    "StreamsGroupHeartbeatRequestTaskIds",
    "StreamsGroupHeartbeatRequestTaskOffset",
    "StreamsGroupHeartbeatRequestTopicInfo",
    "StreamsGroupHeartbeatRequestTopology",
    "StreamsGroupHeartbeatResponse",
    "StreamsGroupHeartbeatResponseEndpoint",
    "StreamsGroupHeartbeatResponseTaskIds",
    "TopicPartition",
]


class StreamsGroupHeartbeatRequestKeyValue(Struct):
    """One entry of `topic_configs` in StreamsGroupHeartbeatRequestTopicInfo."""

    key: String = field("0+", default="")
    value: String = field("0+", default="")


class StreamsGroupHeartbeatRequestTopicInfo(Struct):
    """One entry of `state_changelog_topics` in StreamsGroupHeartbeatRequestSubtopology."""

    name: String = field("0+", default="")
    partitions: Int32 = field("0+", default=0)
    replication_factor: Int16 = field("0+", default=0)
    topic_configs: list[StreamsGroupHeartbeatRequestKeyValue] = field("0+", default=[])


class CopartitionGroup(Struct):
    """One entry of `copartition_groups` in StreamsGroupHeartbeatRequestSubtopology."""

    source_topics: list[Int16] = field("0+", default=[])
    source_topic_regex: list[Int16] = field("0+", default=[])
    repartition_source_topics: list[Int16] = field("0+", default=[])


class StreamsGroupHeartbeatRequestSubtopology(Struct):
    """One entry of `subtopologies` in StreamsGroupHeartbeatRequestTopology."""

    subtopology_id: String = field("0+", default="")
    source_topics: list[String] = field("0+", default=[])
    source_topic_regex: list[String] = field("0+", default=[])
    state_changelog_topics: list[StreamsGroupHeartbeatRequestTopicInfo] = field("0+", default=[])
    repartition_sink_topics: list[String] = field("0+", default=[])
    repartition_source_topics: list[StreamsGroupHeartbeatRequestTopicInfo] = field("0+", default=[])
    copartition_groups: list[CopartitionGroup] = field("0+", default=[])


class StreamsGroupHeartbeatRequestTopology(Struct):
    """The field `topology` of StreamsGroupHeartbeatRequest."""

    epoch: Int32 = field("0+", default=0)
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology] = field("0+", default=[])


class StreamsGroupHeartbeatRequestTaskIds(Struct):
    """One entry of `active_tasks` in StreamsGroupHeartbeatRequest."""

    subtopology_id: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class StreamsGroupHeartbeatRequestEndpoint(Struct):
    """The field `user_endpoint` of StreamsGroupHeartbeatRequest."""

    host: String = field("0+", default="")
    port: UInt16 = field("0+", default=0)


class StreamsGroupHeartbeatRequestTaskOffset(Struct):
    """One entry of `task_offsets` in StreamsGroupHeartbeatRequest."""

    subtopology_id: String = field("0+", default="")
    partition: Int32 = field("0+", default=0)
    offset: Int64 = field("0+", default=0)


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0", flexible="0+"):
    """Joins with a topology, stays, reports tasks, leaves."""

    group_id: String = field("0+", default="")
    member_id: String = field("0+", default="")
    member_epoch: Int32 = field("0+", default=0)
    endpoint_information_epoch: Int32 = field("0+", default=0)
    instance_id: String | None = field("0+", default=None, nullable="0+")
    rack_id: String | None = field("0+", default=None, nullable="0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology: StreamsGroupHeartbeatRequestTopology | None = field("0+", default=None, nullable="0+")
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = field(
        "0+", default=None, nullable="0+"
    )
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = field(
        "0+", default=None, nullable="0+"
    )
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = field(
        "0+", default=None, nullable="0+"
    )
    process_id: String | None = field("0+", default=None, nullable="0+")
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = field(
        "0+", default=None, nullable="0+"
    )
    client_tags: list[StreamsGroupHeartbeatRequestKeyValue] | None = field(
        "0+", default=None, nullable="0+"
    )
    task_offsets: list[StreamsGroupHeartbeatRequestTaskOffset] | None = field(
        "0+", default=None, nullable="0+"
    )
    task_end_offsets: list[StreamsGroupHeartbeatRequestTaskOffset] | None = field(
        "0+", default=None, nullable="0+"
    )
    shutdown_application: Bool = field("0+", default=False)


class Status(Struct):
    """One entry of `status` in StreamsGroupHeartbeatResponse."""

    status_code: Int8 = field("0+", default=0)
    status_detail: String = field("0+", default="")


class StreamsGroupHeartbeatResponseTaskIds(Struct):
    """One entry of `active_tasks` in StreamsGroupHeartbeatResponse."""

    subtopology_id: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class StreamsGroupHeartbeatResponseEndpoint(Struct):
    """The field `user_endpoint` of EndpointToPartitions."""

    host: String = field("0+", default="")
    port: UInt16 = field("0+", default=0)


class TopicPartition(Struct):
    """One entry of `active_partitions` in EndpointToPartitions."""

    topic: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class EndpointToPartitions(Struct):
    """One entry of `partitions_by_user_endpoint` in StreamsGroupHeartbeatResponse."""

    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = field(
        "0+", default_factory=StreamsGroupHeartbeatResponseEndpoint
    )
    active_partitions: list[TopicPartition] = field("0+", default=[])
    standby_partitions: list[TopicPartition] = field("0+", default=[])


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0", flexible="0+"):
    """The answer to StreamsGroupHeartbeatRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    member_id: String = field("0+", default="")
    member_epoch: Int32 = field("0+", default=0)
    heartbeat_interval_ms: Int32 = field("0+", default=0)
    acceptable_recovery_lag: Int32 = field("0+", default=0)
    task_offset_interval_ms: Int32 = field("0+", default=0)
    status: list[Status] | None = field("0+", default=[], nullable="0+")
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = field(
        "0+", default=None, nullable="0+"
    )
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = field(
        "0+", default=None, nullable="0+"
    )
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = field(
        "0+", default=None, nullable="0+"
    )
    endpoint_information_epoch: Int32 = field("0+", default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        "0+", default=None, nullable="0+"
    )


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0", flexible="0+"):
    """Asks for members, tasks and topology of groups."""

    group_ids: list[String] = field("0+", default=[])
    include_authorized_operations: Bool = field("0+", default=False)


class StreamsGroupDescribeResponseKeyValue(Struct):
    """One entry of `topic_configs` in StreamsGroupDescribeResponseTopicInfo."""

    key: String = field("0+", default="")
    value: String = field("0+", default="")


class StreamsGroupDescribeResponseTopicInfo(Struct):
    """One entry of `state_changelog_topics` in StreamsGroupDescribeResponseSubtopology."""

    name: String = field("0+", default="")
    partitions: Int32 = field("0+", default=0)
    replication_factor: Int16 = field("0+", default=0)
    topic_configs: list[StreamsGroupDescribeResponseKeyValue] = field("0+", default=[])


class StreamsGroupDescribeResponseSubtopology(Struct):
    """One entry of `subtopologies` in StreamsGroupDescribeResponseTopology."""

    subtopology_id: String = field("0+", default="")
    source_topics: list[String] = field("0+", default=[])
    repartition_sink_topics: list[String] = field("0+", default=[])
    state_changelog_topics: list[StreamsGroupDescribeResponseTopicInfo] = field("0+", default=[])
    repartition_source_topics: list[StreamsGroupDescribeResponseTopicInfo] = field("0+", default=[])


class StreamsGroupDescribeResponseTopology(Struct):
    """The field `topology` of DescribedGroup."""

    epoch: Int32 = field("0+", default=0)
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = field(
        "0+", default=None, nullable="0+"
    )


class StreamsGroupDescribeResponseEndpoint(Struct):
    """The field `user_endpoint` of Member."""

    host: String = field("0+", default="")
    port: UInt16 = field("0+", default=0)


class StreamsGroupDescribeResponseTaskOffset(Struct):
    """One entry of `task_offsets` in Member."""

    subtopology_id: String = field("0+", default="")
    partition: Int32 = field("0+", default=0)
    offset: Int64 = field("0+", default=0)


class StreamsGroupDescribeResponseTaskIds(Struct):
    """One entry of `active_tasks` in Assignment."""

    subtopology_id: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class Assignment(Struct):
    """The field `assignment` of Member."""

    active_tasks: list[StreamsGroupDescribeResponseTaskIds] = field("0+", default=[])
    standby_tasks: list[StreamsGroupDescribeResponseTaskIds] = field("0+", default=[])
    warmup_tasks: list[StreamsGroupDescribeResponseTaskIds] = field("0+", default=[])


class Member(Struct):
    """One entry of `members` in DescribedGroup."""

    member_id: String = field("0+", default="")
    member_epoch: Int32 = field("0+", default=0)
    instance_id: String | None = field("0+", default=None, nullable="0+")
    rack_id: String | None = field("0+", default=None, nullable="0+")
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    topology_epoch: Int32 = field("0+", default=0)
    process_id: String = field("0+", default="")
    user_endpoint: StreamsGroupDescribeResponseEndpoint | None = field(
        "0+", default=None, nullable="0+"
    )
    client_tags: list[StreamsGroupDescribeResponseKeyValue] = field("0+", default=[])
    task_offsets: list[StreamsGroupDescribeResponseTaskOffset] = field("0+", default=[])
    task_end_offsets: list[StreamsGroupDescribeResponseTaskOffset] = field("0+", default=[])
    assignment: Assignment = field("0+", default_factory=Assignment)
    target_assignment: Assignment = field("0+", default_factory=Assignment)
    is_classic: Bool = field("0+", default=False)


class DescribedGroup(Struct):
    """One entry of `groups` in StreamsGroupDescribeResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    group_id: String = field("0+", default="")
    group_state: String = field("0+", default="")
    group_epoch: Int32 = field("0+", default=0)
    assignment_epoch: Int32 = field("0+", default=0)
    topology: StreamsGroupDescribeResponseTopology | None = field("0+", default=None, nullable="0+")
    members: list[Member] = field("0+", default=[])
    authorized_operations: Int32 = field("0+", default=-2147483648)


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0", flexible="0+"):
    """The answer to StreamsGroupDescribeRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribedGroup] = field("0+", default=[])
