"""Keys and values of share groups' records (KIP-932) in __consumer_offsets. framing.py has their
format. shares.py has the records of the share coordinator.
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
    """The key of a member's own data."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class ShareGroupMemberMetadataValue(Message, record_type=10, versions="0", flexible="0+"):
    """A member's own data."""

    rack_id: String | None = field("0+", default="", nullable="0+")
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    subscribed_topic_names: list[String] = field("0+", default=[])


class ShareGroupMetadataKey(Message, record_type=11, versions="0"):
    """The key of a group's epoch."""

    group_id: String = field("0", default="")


class ShareGroupMetadataValue(Message, record_type=11, versions="0", flexible="0+"):
    """A group's epoch, and a hash of its topics' metadata."""

    epoch: Int32 = field("0+", default=0)
    metadata_hash: Int64 = field("0+", default=0)


class ShareGroupTargetAssignmentMetadataKey(Message, record_type=12, versions="0"):
    """The key of a group's assignment epoch."""

    group_id: String = field("0", default="")


class ShareGroupTargetAssignmentMetadataValue(Message, record_type=12, versions="0", flexible="0+"):
    """The group epoch for which the target assignment was computed, and the time in ms."""

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
    """A member's target assignment."""

    topic_partitions: list[TopicPartition] = field("0+", default=[])


class ShareGroupCurrentMemberAssignmentKey(Message, record_type=14, versions="0"):
    """The key of a member's current assignment."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class TopicPartitions(Struct):
    """One entry of `assigned_partitions` in ShareGroupCurrentMemberAssignmentValue."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ShareGroupCurrentMemberAssignmentValue(Message, record_type=14, versions="0", flexible="0+"):
    """A member's epochs, and its current assignment."""

    member_epoch: Int32 = field("0+", default=0)
    previous_member_epoch: Int32 = field("0+", default=0)
    state: Int8 = field("0+", default=0)
    assigned_partitions: list[TopicPartitions] = field("0+", default=[])


class ShareGroupStatePartitionMetadataKey(Message, record_type=15, versions="0"):
    """The key of what a group knows about the state of its share-partitions."""

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
    """The share-partitions whose state is being initialized, exists, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = field("0+", default=[])
    initialized_topics: list[TopicPartitionsInfo] = field("0+", default=[])
    deleting_topics: list[TopicInfo] = field("0+", default=[])
