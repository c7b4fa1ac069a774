"""ShareGroupDescribe (KIP-932): members and assignments of share groups."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "DescribedGroup",
    "Member",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupDescribeResponseAssignment",
    "ShareGroupDescribeResponseTopicPartitions",
]


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
    """The field `assignment` of Member."""

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
