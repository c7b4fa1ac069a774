"""Members that leave a streams group, and its timers: sessions, members that do not give up their
tasks, the initial rebalance delay, and timers after replay.
"""

from __future__ import annotations

from kstore.broker.state.groups.contract import Group, ShardState, absence
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.streams.group import (
    STREAMS_KIND,
    MemberState,
    StreamsGroup,
    StreamsMember,
)
from kstore.broker.state.groups.streams.records import epoch_record
from kstore.broker.state.groups.streams.target import compute_target
from kstore.broker.state.groups.streams.tombstones import member_tombstones
from kstore.broker.state.groups.streams.topology import StreamsError
from kstore.broker.state.groups.timers import (
    RebalanceExpired,
    SessionExpired,
    StreamsDelayExpired,
    TimerChange,
)
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kstore.protocol.schema import Message

__all__ = [
    "cancel_rebalance_timer",
    "delay_expired",
    "delay_timer",
    "leave_group",
    "parked_answers",
    "rebalance_expired",
    "rebalance_timer",
    "resume",
    "session_expired",
    "session_timer",
]


def session_timer(ctx: GroupContext, group_id: str, member_id: str) -> TimerChange:
    """The session timer of a member that has just sent a request."""
    timeout_ms = ctx.configs["streams.session.timeout.ms"]
    key = ("streams-session", group_id, member_id)
    return TimerChange(key, timeout_ms, SessionExpired(group_id, member_id))


def rebalance_timer(group_id: str, member: StreamsMember) -> TimerChange:
    """The timer of a member that must give up tasks."""
    key = ("streams-rebalance", group_id, member.member_id)
    event = RebalanceExpired(group_id, member.member_id, member.member_epoch)
    return TimerChange(key, member.rebalance_timeout_ms, event)


def cancel_rebalance_timer(group_id: str, member_id: str) -> TimerChange:
    """Cancel the timer of a member that has given up its tasks, or has left."""
    return TimerChange(("streams-rebalance", group_id, member_id), 0, None)


def delay_timer(group_id: str, delay_ms: int) -> TimerChange:
    """The timer of a new group. Its first assignment waits for more members."""
    return TimerChange(("streams-delay", group_id), delay_ms, StreamsDelayExpired(group_id))


def leave_group(group: Group | None, request: StreamsGroupHeartbeatRequest) -> Result:
    """Remove a member that leaves. It may request a shutdown of the application. Raises
    StreamsError if it is not a member.
    """
    if not isinstance(group, StreamsGroup):
        raise StreamsError(
            ErrorCode.GROUP_ID_NOT_FOUND, absence(group, request.group_id, STREAMS_KIND)
        )
    if request.member_id not in group.members:
        raise StreamsError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {group.group_id} has no member {request.member_id} that could leave.",
        )
    response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch, status=[]
    )
    result = _fence(group, request.member_id, response)
    last = len(group.members) == 1
    if request.shutdown_application and group.soft.shutdown_member_id is None and not last:
        soft = group.soft._replace(shutdown_member_id=request.member_id)
        result = result._replace(marks=((group.group_id, "soft", soft),))
    return result


def _fence(group: StreamsGroup, member_id: str, response: Message | None = None) -> Result:
    """Remove a member. The next heartbeat of another member reassigns its tasks."""
    group_id = group.group_id
    records: list[GroupRecord] = member_tombstones(group_id, [member_id])
    records.append(
        epoch_record(
            group_id,
            group.group_epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )
    )
    timers = (
        TimerChange(("streams-session", group_id, member_id), 0, None),
        cancel_rebalance_timer(group_id, member_id),
    )
    return Result(response, tuple(records), timers=timers)


def session_expired(
    shard: ShardState, group: StreamsGroup, event: SessionExpired, ctx: GroupContext
) -> Result:
    """Remove a member whose session expired."""
    return _fence(group, event.member_id) if event.member_id in group.members else Result()


def rebalance_expired(
    shard: ShardState, group: StreamsGroup, event: RebalanceExpired, ctx: GroupContext
) -> Result:
    """Remove a member that has not given up its tasks in time, unless its epoch has
    advanced since.
    """
    member = group.members.get(event.member_id)
    if member is None or member.member_epoch != event.member_epoch:
        return Result()
    return _fence(group, event.member_id)


def delay_expired(
    shard: ShardState, group: StreamsGroup, event: StreamsDelayExpired, ctx: GroupContext
) -> Work[Result]:
    """Compute the first target assignment when the initial delay is over."""
    soft = group.soft._replace(delay_pending=False)
    marks = ((group.group_id, "soft", soft),)
    waits = group.group_epoch > group.assignment_epoch
    if group.is_empty or soft.configured is None or not waits:
        return Result(marks=marks)
    target = yield from compute_target(
        group,
        group.members,
        soft.configured,
        group.group_epoch,
        group.assignment_configs,
        ctx.now_ms,
    )
    return Result(records=target.records, marks=marks)


def resume(shard: ShardState, group: StreamsGroup, ctx: GroupContext) -> Result:
    """After replay: restart sessions and rebalance timers."""
    timers: list[TimerChange] = []
    for member in group.members.values():
        timers.append(session_timer(ctx, group.group_id, member.member_id))
        if member.state == MemberState.UNREVOKED_TASKS:
            timers.append(rebalance_timer(group.group_id, member))
    return Result(timers=tuple(timers))


def parked_answers(group: StreamsGroup) -> list[tuple[object, Message]]:
    """Empty: every heartbeat is answered at once."""
    return []
