"""The consumer group protocol of KIP-848: one heartbeat, and its description. KIP-253's fields are
kstore's.
"""

from __future__ import annotations

from kstore.protocol.groups.classic import NeedPositionTopic, PositionTopic
from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupDescribeResponseAssignment",
    "ConsumerGroupDescribeResponseTopicPartitions",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatRequestTopicPartitions",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupHeartbeatResponseAssignment",
    "ConsumerGroupHeartbeatResponseTopicPartitions",
    "DescribedGroup",
    "Member",
]


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    """One entry of `topic_partitions` in ConsumerGroupHeartbeatRequest."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    """Joins (epoch 0), stays, reports owned partitions, leaves (epoch -1 or -2)."""

    group_id: String = field("0+", default="")
    member_id: String = field("0+", default="")
    member_epoch: Int32 = field("0+", default=0)
    instance_id: String | None = field("0+", default=None, nullable="0+")
    rack_id: String | None = field("0+", default=None, nullable="0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    subscribed_topic_names: list[String] | None = field("0+", default=None, nullable="0+")
    subscribed_topic_regex: String | None = field("1+", default=None, nullable="1+")
    server_assignor: String | None = field("0+", default=None, nullable="0+")
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = field(
        "0+", default=None, nullable="0+"
    )
    # KIP-253, kstore only.
    need_position: list[NeedPositionTopic] = field("0+", default=[], tag=25301, ignorable=True)
    # KIP-253, kstore only.
    position: list[PositionTopic] = field("0+", default=[], tag=25302, ignorable=True)


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    """One entry of `topic_partitions` in ConsumerGroupHeartbeatResponseAssignment."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ConsumerGroupHeartbeatResponseAssignment(Struct):
    """The field `assignment` of ConsumerGroupHeartbeatResponse."""

    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = field("0+", default=[])


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    """The answer to ConsumerGroupHeartbeatRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    member_id: String | None = field("0+", default=None, nullable="0+")
    member_epoch: Int32 = field("0+", default=0)
    heartbeat_interval_ms: Int32 = field("0+", default=0)
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = field(
        "0+", default=None, nullable="0+"
    )
    # KIP-253, kstore only.
    need_position: list[NeedPositionTopic] = field("0+", default=[], tag=25301, ignorable=True)
    # KIP-253, kstore only.
    position: list[PositionTopic] = field("0+", default=[], tag=25302, ignorable=True)


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    """Asks for members, assignments and target assignments of groups."""

    group_ids: list[String] = field("0+", default=[])
    include_authorized_operations: Bool = field("0+", default=False)


class ConsumerGroupDescribeResponseTopicPartitions(Struct):
    """One entry of `topic_partitions` in ConsumerGroupDescribeResponseAssignment."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    topic_name: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class ConsumerGroupDescribeResponseAssignment(Struct):
    """The field `assignment` of Member."""

    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions] = field("0+", default=[])


class Member(Struct):
    """One entry of `members` in DescribedGroup."""

    member_id: String = field("0+", default="")
    instance_id: String | None = field("0+", default=None, nullable="0+")
    rack_id: String | None = field("0+", default=None, nullable="0+")
    member_epoch: Int32 = field("0+", default=0)
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    subscribed_topic_names: list[String] = field("0+", default=[])
    subscribed_topic_regex: String | None = field("0+", default=None, nullable="0+")
    assignment: ConsumerGroupDescribeResponseAssignment = field(
        "0+", default_factory=ConsumerGroupDescribeResponseAssignment
    )
    target_assignment: ConsumerGroupDescribeResponseAssignment = field(
        "0+", default_factory=ConsumerGroupDescribeResponseAssignment
    )
    member_type: Int8 = field("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    """One entry of `groups` in ConsumerGroupDescribeResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    group_id: String = field("0+", default="")
    group_state: String = field("0+", default="")
    group_epoch: Int32 = field("0+", default=0)
    assignment_epoch: Int32 = field("0+", default=0)
    assignor_name: String = field("0+", default="")
    members: list[Member] = field("0+", default=[])
    authorized_operations: Int32 = field("0+", default=-2147483648)


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    """The answer to ConsumerGroupDescribeRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribedGroup] = field("0+", default=[])
