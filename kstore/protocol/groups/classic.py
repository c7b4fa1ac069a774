"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. Offsets and the
administration of groups have their own modules.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "MemberIdentity",
    "MemberResponse",
    "NeedPositionTopic",
    "PositionPartition",
    "PositionTopic",
    "SyncGroupRequest",
    "SyncGroupRequestAssignment",
    "SyncGroupResponse",
]


class PositionPartition(Struct):
    """A partition, and the consumer's position in it (KIP-253)."""

    partition: Int32 = field("0+", default=0)
    position: Int64 = field("0+", default=-1)
    # KIP-232.
    partition_epoch: Int32 = field("0+", default=-1, tag=23200, ignorable=True)


class PositionTopic(Struct):
    """The positions of one topic's partitions (KIP-253)."""

    topic: String = field("0+", default="")
    partitions: list[PositionPartition] = field("0+", default=[])


class NeedPositionTopic(Struct):
    """The partitions of one topic whose positions are requested (KIP-253)."""

    topic: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class JoinGroupRequestProtocol(Struct):
    """One entry of `protocols` in JoinGroupRequest."""

    name: String = field("0+", default="")
    metadata: Bytes = field("0+", default=b"")


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    """Joins a group, or rejoins it in a rebalance; answered when all members have joined."""

    group_id: String = field("0+", default="")
    session_timeout_ms: Int32 = field("0+", default=0)
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("0+", default="")
    group_instance_id: String | None = field("5+", default=None, nullable="5+")
    protocol_type: String = field("0+", default="")
    protocols: list[JoinGroupRequestProtocol] = field("0+", default=[])
    reason: String | None = field("8+", default=None, nullable="8+", ignorable=True)


class JoinGroupResponseMember(Struct):
    """One entry of `members` in JoinGroupResponse."""

    member_id: String = field("0+", default="")
    group_instance_id: String | None = field("5+", default=None, nullable="5+", ignorable=True)
    metadata: Bytes = field("0+", default=b"")


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    """The answer to JoinGroupRequest."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    generation_id: Int32 = field("0+", default=-1)
    protocol_type: String | None = field("7+", default=None, nullable="7+", ignorable=True)
    protocol_name: String | None = field("0+", default="", nullable="7+")
    leader: String = field("0+", default="")
    skip_assignment: Bool = field("9+", default=False)
    member_id: String = field("0+", default="")
    members: list[JoinGroupResponseMember] = field("0+", default=[])


class SyncGroupRequestAssignment(Struct):
    """One entry of `assignments` in SyncGroupRequest."""

    member_id: String = field("0+", default="")
    assignment: Bytes = field("0+", default=b"")


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    """Fetches the member's assignment; the leader's request has the assignments of all members."""

    group_id: String = field("0+", default="")
    generation_id: Int32 = field("0+", default=0)
    member_id: String = field("0+", default="")
    group_instance_id: String | None = field("3+", default=None, nullable="3+")
    protocol_type: String | None = field("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: String | None = field("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field("0+", default=[])


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    """The answer to SyncGroupRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    protocol_type: String | None = field("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: String | None = field("5+", default=None, nullable="5+", ignorable=True)
    assignment: Bytes = field("0+", default=b"")


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    """Keeps a member alive; an error in the response reports a rebalance."""

    group_id: String = field("0+", default="")
    generation_id: Int32 = field("0+", default=0)
    member_id: String = field("0+", default="")
    group_instance_id: String | None = field("3+", default=None, nullable="3+")
    # KIP-253, kstore only.
    need_position: list[NeedPositionTopic] = field("4+", default=[], tag=25301, ignorable=True)
    # KIP-253, kstore only.
    position: list[PositionTopic] = field("4+", default=[], tag=25302, ignorable=True)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    """The answer to HeartbeatRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    # KIP-253, kstore only.
    need_position: list[NeedPositionTopic] = field("4+", default=[], tag=25301, ignorable=True)
    # KIP-253, kstore only.
    position: list[PositionTopic] = field("4+", default=[], tag=25302, ignorable=True)


class MemberIdentity(Struct):
    """One entry of `members` in LeaveGroupRequest."""

    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None, nullable="3+")
    reason: String | None = field("5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    """Removes one member (before version 3) or several (KIP-345) from a group."""

    group_id: String = field("0+", default="")
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=[])


class MemberResponse(Struct):
    """One entry of `members` in LeaveGroupResponse."""

    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default="", nullable="3+")
    error_code: Int16 = field("3+", default=0)


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    """The answer to LeaveGroupRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    members: list[MemberResponse] = field("3+", default=[])
