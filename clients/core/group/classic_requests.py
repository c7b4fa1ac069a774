"""The requests of a member of a classic group, and the parsing of the members' subscriptions by the
leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstore.clients.core.group.assignors import Subscription
from kstore.clients.core.group.classic_protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kstore.clients.core.group.group_step import MemberSettings
from kstore.protocol.groups.classic import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kstore.types import TopicPartition

__all__ = [
    "PROTOCOL_TYPE",
    "heartbeat_request",
    "join_request",
    "leave_request",
    "subscriptions_of",
    "sync_request",
]

PROTOCOL_TYPE = "consumer"
MAX_REASON = 255


def join_request(
    settings: MemberSettings,
    member_id: str,
    subscriptions: Mapping[str, Subscription],
    reason: str,
) -> JoinGroupRequest:
    """``subscriptions`` by assignor, the preferred one first."""
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=encode_subscription(subscription))
            for name, subscription in subscriptions.items()
        ],
        reason=reason[:MAX_REASON],
    )


def sync_request(
    settings: MemberSettings,
    member_id: str,
    generation: int,
    protocol: str | None,
    given: Mapping[str, tuple[TopicPartition, ...]],
) -> SyncGroupRequest:
    """``given`` is the leader's assignment of each member; other members send none."""
    return SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=encode_assignment(partitions))
            for each, partitions in given.items()
        ],
    )


def heartbeat_request(
    settings: MemberSettings, member_id: str, generation: int
) -> HeartbeatRequest:
    """A heartbeat, in a generation."""
    return HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=settings.instance_id,
    )


def leave_request(settings: MemberSettings, member_id: str, reason: str) -> LeaveGroupRequest:
    """The request with which a dynamic member leaves."""
    identity = MemberIdentity(member_id=member_id, reason=reason[:MAX_REASON])
    return LeaveGroupRequest(group_id=settings.group_id, members=[identity])


def subscriptions_of(members: Sequence[JoinGroupResponseMember]) -> dict[str, Subscription]:
    """The subscription of each member, as the leader receives it. Raises ProtocolError for one that
    can't be parsed.
    """
    return {
        row.member_id: decode_subscription(bytes(row.metadata), row.group_instance_id)
        for row in members
    }
