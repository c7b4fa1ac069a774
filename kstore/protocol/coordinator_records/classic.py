"""Keys and values of the classic groups' records in __consumer_offsets. framing.py has their
format.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bytes,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "GroupMetadataKey",
    "GroupMetadataValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
]


class OffsetCommitKey(Message, record_type=1, versions="0"):
    """The key of a committed offset: group, topic, partition."""

    group: String = field("0", default="")
    topic: String = field("0", default="")
    partition: Int32 = field("0", default=0)


class OffsetCommitValue(Message, record_type=1, versions="0-4", flexible="4+"):
    """A committed offset; a record without a value deletes it."""

    offset: Int64 = field("0+", default=0)
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String = field("0+", default="")
    commit_timestamp: Int64 = field("0+", default=0)
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", default=ZERO_UUID, tag=0, ignorable=True)
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("4+", default=-1, tag=23200, ignorable=True)


class GroupMetadataKey(Message, record_type=2, versions="0"):
    """The key of a classic group's state."""

    group: String = field("0", default="")


class MemberMetadata(Struct):
    """One entry of `members` in GroupMetadataValue."""

    member_id: String = field("0+", default="")
    group_instance_id: String | None = field("3+", default=None, nullable="3+", ignorable=True)
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32 = field("0+", default=0)
    subscription: Bytes = field("0+", default=b"")
    assignment: Bytes = field("0+", default=b"")


class GroupMetadataValue(Message, record_type=2, versions="0-4", flexible="4+"):
    """A classic group's state between rebalances: generation, protocol, leader, members."""

    protocol_type: String = field("0+", default="")
    generation: Int32 = field("0+", default=0)
    protocol: String | None = field("0+", default="", nullable="0+")
    leader: String | None = field("0+", default="", nullable="0+")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field("0+", default=[])
