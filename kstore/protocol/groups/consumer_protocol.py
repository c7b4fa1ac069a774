"""The embedded messages of the classic protocol's consumers in JoinGroup and SyncGroup. Brokers do
not parse them. A newer version is read as the newest known one, and trailing bytes are ignored.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    Bytes,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "ConsumerProtocolAssignment",
    "ConsumerProtocolAssignmentTopicPartition",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolSubscriptionTopicPartition",
]


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    """One entry of `owned_partitions` in ConsumerProtocolSubscription."""

    topic: String = field("1+", default="")
    partitions: list[Int32] = field("1+", default=[])


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """A member's topics, and (from version 1 on) the partitions it owns."""

    topics: list[String] = field("0+", default=[])
    user_data: Bytes | None = field("0+", default=None, nullable="0+")
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field(
        "1+", default=[], ignorable=True
    )
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, nullable="3+", ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    """One entry of `assigned_partitions` in ConsumerProtocolAssignment."""

    topic: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions that the leader assigns to a member."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field("0+", default=[])
    user_data: Bytes | None = field("0+", default=None, nullable="0+")
