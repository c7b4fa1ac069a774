"""Keys and values of share groups' records (KIP-932) in __consumer_offsets. How they are framed is
in framing.py; what the share coordinator stores is not here.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "TopicInfo",
    "TopicPartition",
    "TopicPartitions",
    "TopicPartitionsInfo",
]


class ShareGroupMemberMetadataKey(Message, record_type=10, versions="0"):
    """The key of what a member says of itself."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class ShareGroupMemberMetadataValue(Message, record_type=10, versions="0", flexible="0+"):
    """What a member says of itself."""

    rack_id: String | None = field("0+", default="", nullable="0+")
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    subscribed_topic_names: list[String] = field("0+", default=[])


class ShareGroupMetadataKey(Message, record_type=11, versions="0"):
    """The key of a group's epoch."""

    group_id: String = field("0", default="")


class ShareGroupMetadataValue(Message, record_type=11, versions="0", flexible="0+"):
    """A group's epoch, and a hash of what it knows of its topics."""

    epoch: Int32 = field("0+", default=0)
    metadata_hash: Int64 = field("0+", default=0)


class ShareGroupTargetAssignmentMetadataKey(Message, record_type=12, versions="0"):
    """The key of a group's assignment epoch."""

    group_id: String = field("0", default="")


class ShareGroupTargetAssignmentMetadataValue(Message, record_type=12, versions="0", flexible="0+"):
    """The epoch that the target assignment is for, and when it was computed, in ms."""

    assignment_epoch: Int32 = field("0+", default=0)
    assignment_timestamp: Int64 = field("0+", default=0, tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, record_type=13, versions="0"):
    """The key of a member's target assignment."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class TopicPartition(Struct):
    """One entry of `topic_partitions` in ShareGroupTargetAssignmentMemberValue."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ShareGroupTargetAssignmentMemberValue(Message, record_type=13, versions="0", flexible="0+"):
    """What a member is to have."""

    topic_partitions: list[TopicPartition] = field("0+", default=[])


class ShareGroupCurrentMemberAssignmentKey(Message, record_type=14, versions="0"):
    """The key of what a member has."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class TopicPartitions(Struct):
    """One entry of `assigned_partitions` in ShareGroupCurrentMemberAssignmentValue."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ShareGroupCurrentMemberAssignmentValue(Message, record_type=14, versions="0", flexible="0+"):
    """A member's epochs, and what it has."""

    member_epoch: Int32 = field("0+", default=0)
    previous_member_epoch: Int32 = field("0+", default=0)
    state: Int8 = field("0+", default=0)
    assigned_partitions: list[TopicPartitions] = field("0+", default=[])


class ShareGroupStatePartitionMetadataKey(Message, record_type=15, versions="0"):
    """The key of what a group knows of its share partitions' state."""

    group_id: String = field("0", default="")


class TopicPartitionsInfo(Struct):
    """Partitions of a topic in ShareGroupStatePartitionMetadataValue."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    topic_name: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class TopicInfo(Struct):
    """A topic in ShareGroupStatePartitionMetadataValue."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    topic_name: String = field("0+", default="")


class ShareGroupStatePartitionMetadataValue(Message, record_type=15, versions="0", flexible="0+"):
    """Which share partitions' state is being initialized, is there, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = field("0+", default=[])
    initialized_topics: list[TopicPartitionsInfo] = field("0+", default=[])
    deleting_topics: list[TopicInfo] = field("0+", default=[])
