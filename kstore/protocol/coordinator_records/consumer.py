"""Keys and values of consumer groups' records (KIP-848) in __consumer_offsets. framing.py has their
format.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bytes,
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
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "PartitionMetadata",
    "TopicMetadata",
    "TopicPartition",
    "TopicPartitions",
]


class ConsumerGroupMetadataKey(Message, record_type=3, versions="0"):
    """The key of a group's epoch."""

    group_id: String = field("0", default="")


class ConsumerGroupMetadataValue(Message, record_type=3, versions="0", flexible="0+"):
    """A group's epoch, and a hash of its topics' metadata."""

    epoch: Int32 = field("0+", default=0)
    metadata_hash: Int64 = field("0+", default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, record_type=4, versions="0"):
    """The key of a group's topics, as older brokers stored them."""

    group_id: String = field("0", default="")


class PartitionMetadata(Struct):
    """One entry of `partition_metadata` in TopicMetadata."""

    partition: Int32 = field("0+", default=0)
    racks: list[String] = field("0+", default=[])


class TopicMetadata(Struct):
    """One entry of `topics` in ConsumerGroupPartitionMetadataValue."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    topic_name: String = field("0+", default="")
    num_partitions: Int32 = field("0+", default=0)
    partition_metadata: list[PartitionMetadata] = field("0+", default=[])


class ConsumerGroupPartitionMetadataValue(Message, record_type=4, versions="0", flexible="0+"):
    """A group's topics, before they were replaced by the metadata hash: read, never written."""

    topics: list[TopicMetadata] = field("0+", default=[])


class ConsumerGroupMemberMetadataKey(Message, record_type=5, versions="0"):
    """The key of a member's own data."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class ClassicProtocol(Struct):
    """One entry of `supported_protocols` in ClassicMemberMetadata."""

    name: String = field("0+", default="")
    metadata: Bytes = field("0+", default=b"")


class ClassicMemberMetadata(Struct):
    """The field `classic_member_metadata` of ConsumerGroupMemberMetadataValue."""

    session_timeout_ms: Int32 = field("0+", default=0)
    supported_protocols: list[ClassicProtocol] = field("0+", default=[])


class ConsumerGroupMemberMetadataValue(Message, record_type=5, versions="0", flexible="0+"):
    """A member's own data: ids, client, subscription, timeout, assignor."""

    instance_id: String | None = field("0+", default="", nullable="0+")
    rack_id: String | None = field("0+", default="", nullable="0+")
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    subscribed_topic_names: list[String] = field("0+", default=[])
    subscribed_topic_regex: String | None = field("0+", default="", nullable="0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    server_assignor: String | None = field("0+", default="", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        "0+", default=None, nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, record_type=6, versions="0"):
    """The key of the target assignment's epoch."""

    group_id: String = field("0", default="")


class ConsumerGroupTargetAssignmentMetadataValue(
    Message, record_type=6, versions="0", flexible="0+"
):
    """The group epoch for which the target assignment was computed, and the time (ms since
    1970).
    """

    assignment_epoch: Int32 = field("0+", default=0)
    assignment_timestamp: Int64 = field("0+", default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, record_type=7, versions="0"):
    """The key of a member's target assignment."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class TopicPartition(Struct):
    """One entry of `topic_partitions` in ConsumerGroupTargetAssignmentMemberValue."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])


class ConsumerGroupTargetAssignmentMemberValue(Message, record_type=7, versions="0", flexible="0+"):
    """A member's target assignment."""

    topic_partitions: list[TopicPartition] = field("0+", default=[])


class ConsumerGroupCurrentMemberAssignmentKey(Message, record_type=8, versions="0"):
    """The key of a member's current assignment."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class TopicPartitions(Struct):
    """Partitions of a topic, each with the epoch in which it was assigned (KAFKA-19779)."""

    topic_id: Uuid = field("0+", default=ZERO_UUID)
    partitions: list[Int32] = field("0+", default=[])
    assignment_epochs: list[Int32] | None = field("0+", default=None, nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(
    Message, record_type=8, versions="0", flexible="0+"
):
    """A member's current assignment, the partitions that it must still give up, and its epochs."""

    member_epoch: Int32 = field("0+", default=0)
    previous_member_epoch: Int32 = field("0+", default=0)
    state: Int8 = field("0+", default=0)
    assigned_partitions: list[TopicPartitions] = field("0+", default=[])
    partitions_pending_revocation: list[TopicPartitions] = field("0+", default=[])


class ConsumerGroupRegularExpressionKey(Message, record_type=16, versions="0"):
    """The key of a resolved regular expression."""

    group_id: String = field("0", default="")
    regular_expression: String = field("0", default="")


class ConsumerGroupRegularExpressionValue(Message, record_type=16, versions="0", flexible="0+"):
    """The topics that matched, the version of the metadata, and the time."""

    topics: list[String] = field("0+", default=[])
    version: Int64 = field("0+", default=0)
    timestamp: Int64 = field("0+", default=0)
