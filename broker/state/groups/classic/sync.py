"""SyncGroup, Heartbeat, LeaveGroup and the timers of the classic protocol. Joins are in join.py."""

from __future__ import annotations

from kstore.broker.state.groups.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicMember,
    member_error,
    session_timer,
)
from kstore.broker.state.groups.classic.held_back import is_due, without_held_back
from kstore.broker.state.groups.classic.step import UNKNOWN_MEMBER_ID, Step
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.result import Edit, GroupContext, Result
from kstore.broker.state.groups.timers import (
    HeartbeatExpired,
    InitialRebalanceExpired,
    JoinExpired,
    SyncExpired,
    TimerChange,
    TimerEvent,
    join_key,
    sync_key,
)
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

__all__ = [
    "expire",
    "heartbeat",
    "leave_group",
    "quick_heartbeat",
    "quick_sync",
    "sync_group",
]


def sync_group(
    shard: ShardState, group: ClassicGroup | None, request: SyncGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Return the member's assignment in its generation, or park the request until the leader sends
    it.
    """
    error_code = _sync_error(group, request)
    if error_code != ErrorCode.NONE or group is None:
        return Result(SyncGroupResponse(error_code=error_code))
    step = Step(group, ctx, shard.settings)
    _mark_synced(step, request.member_id)
    member = step.group.members[request.member_id]
    if group.state == STABLE:
        return step.result(_assigned(group, member))
    superseded = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    step.answer_sync(request.member_id, superseded)
    step.group.put(member._replace(awaiting_sync=ctx.token))
    if group.leader_id == request.member_id:
        given = {item.member_id: bytes(item.assignment) for item in request.assignments}
        given, step.group.lacking = without_held_back(step.group, given, ctx.image)
        yield from step.become_stable(given)
    return step.result()


def quick_sync(
    shard: ShardState, group: ClassicGroup, request: SyncGroupRequest, ctx: GroupContext
) -> Result | None:
    """See the table QUICK: the member waits for the leader, or its assignment is known."""
    member_id = request.member_id
    if _sync_error(group, request) != ErrorCode.NONE:
        return None
    member = group.members[member_id]
    left = len(group.pending_sync) - (member_id in group.pending_sync)
    timers = () if left else (TimerChange(sync_key(group.group_id), 0, None),)
    if group.state == STABLE:
        synced = Edit(group.group_id, member, has_synced=True)
        return Result(_assigned(group, member), timers=timers, edit=synced)
    if member.awaiting_sync is not None or group.leader_id == member_id:
        return None
    waiting = member._replace(awaiting_sync=ctx.token)
    return Result(timers=timers, edit=Edit(group.group_id, waiting, has_synced=True))


def _assigned(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _sync_error(group: ClassicGroup | None, request: SyncGroupRequest) -> int:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state == EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error_code = member_error(group, request.member_id, request.group_instance_id)
    if error_code != ErrorCode.NONE:
        return error_code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or (
        request.protocol_name is not None
        and group.protocol_name is not None
        and request.protocol_name != group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state == PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _mark_synced(step: Step, member_id: str) -> None:
    step.group.pending_sync.discard(member_id)
    if not step.group.pending_sync:
        step.cancel_timer(sync_key(step.group.group_id))


def heartbeat(
    shard: ShardState, group: ClassicGroup | None, request: HeartbeatRequest, ctx: GroupContext
) -> Work[Result]:
    """Extend the member's session. REBALANCE_IN_PROGRESS makes it join again."""
    yield from ()
    if not request.group_id:
        return Result(HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    if group is None:
        return Result(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    error_code = member_error(group, request.member_id, request.group_instance_id)
    if error_code == ErrorCode.NONE and request.generation_id != group.generation_id:
        error_code = ErrorCode.ILLEGAL_GENERATION
    if error_code != ErrorCode.NONE:
        return Result(HeartbeatResponse(error_code=error_code))
    if is_due(group, ctx.image):
        step = Step(group, ctx, shard.settings)
        step.group.lacking = frozenset()
        yield from step.prepare_rebalance()
        step.expect_heartbeat(group.members[request.member_id])
        return step.result(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    return _kept(group, request)


def quick_heartbeat(
    shard: ShardState, group: ClassicGroup, request: HeartbeatRequest, ctx: GroupContext
) -> Result | None:
    """See the table QUICK: the member is in the current generation."""
    is_current = request.generation_id == group.generation_id and not group.lacking
    if not is_current or member_error(group, request.member_id, request.group_instance_id):
        return None
    return _kept(group, request)


def _kept(group: ClassicGroup, request: HeartbeatRequest) -> Result:
    """The session is kept."""
    rebalances = group.state == PREPARING_REBALANCE
    error_code = ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE
    timer = session_timer(group.group_id, group.members[request.member_id])
    return Result(HeartbeatResponse(error_code=error_code), timers=(timer,))


def leave_group(
    shard: ShardState, group: ClassicGroup | None, request: LeaveGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Remove the named members. The others rebalance."""
    if not request.group_id:
        return Result(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    if group is None:
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        members = [_left(identity, unknown) for identity in request.members]
        return Result(LeaveGroupResponse(members=members))
    step = Step(group, ctx, shard.settings)
    members = []
    for identity in request.members:
        members.append(_left(identity, _leave(step, identity)))
        yield
    if any(member.error_code == ErrorCode.NONE for member in members):
        if step.group.state in (STABLE, COMPLETING_REBALANCE):
            yield from step.rebalance_or_complete_join()
        else:
            yield from step.maybe_complete_join()
    return step.result(LeaveGroupResponse(members=members))


def _left(identity: MemberIdentity, error_code: int) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=error_code,
    )


def _leave(step: Step, identity: MemberIdentity) -> int:
    group = step.group
    member_id = identity.member_id
    if member_id == UNKNOWN_MEMBER_ID:  # an administrator removes a static member by its name
        member_id = group.static_members.get(identity.group_instance_id or "", UNKNOWN_MEMBER_ID)
    elif member_id in group.pending_join:
        step.drop_pending(member_id)
        return ErrorCode.NONE
    error_code = member_error(group, member_id, identity.group_instance_id)
    if error_code == ErrorCode.NONE:
        step.drop_member(member_id)
    return error_code


def expire(
    shard: ShardState, group: ClassicGroup, event: TimerEvent, ctx: GroupContext
) -> Work[Result]:
    """Handle a timer that fired. The Result is empty if the event is obsolete."""
    step = Step(group, ctx, shard.settings)
    if isinstance(event, HeartbeatExpired):
        changed = yield from _expire_session(step, event.member_id)
    elif isinstance(event, SyncExpired):
        changed = yield from _expire_sync(step, event.generation_id)
    elif isinstance(event, InitialRebalanceExpired):
        changed = yield from _expire_initial_delay(step, event)
    else:
        assert isinstance(event, JoinExpired)
        changed = group.state == PREPARING_REBALANCE
        if changed:
            yield from step.complete_join()
    return step.result() if changed else Result()


def _expire_session(step: Step, member_id: str) -> Work[bool]:
    group = step.group
    if member_id in group.pending_join:
        step.drop_pending(member_id)
        if group.state == PREPARING_REBALANCE and group.all_joined:
            yield from step.complete_join()
        return True
    member = group.members.get(member_id)
    if member is None:
        return False
    waiting = member.awaiting_join is not None or member.awaiting_sync is not None
    if waiting and not member.is_new:
        return False  # the member waits for the group
    step.drop_member(member_id)
    if group.state in (STABLE, COMPLETING_REBALANCE):
        yield from step.rebalance_or_complete_join()
    elif group.state == PREPARING_REBALANCE and group.all_joined:
        yield from step.complete_join()
    return True


def _expire_sync(step: Step, generation_id: int) -> Work[bool]:
    group = step.group
    if (
        generation_id != group.generation_id
        or group.state not in (COMPLETING_REBALANCE, STABLE)
        or not group.pending_sync
    ):
        return False
    for member_id in list(group.pending_sync):
        group.remove(member_id)
        step.forget_heartbeat(member_id)
        yield
    yield from step.prepare_rebalance()
    return True


def _expire_initial_delay(step: Step, event: InitialRebalanceExpired) -> Work[bool]:
    group = step.group
    if group.state != PREPARING_REBALANCE:
        return False
    if not group.new_member_added or event.remaining_ms == 0:
        yield from step.complete_join()
        return True
    group.new_member_added = False
    delay_ms = min(step.settings.initial_rebalance_delay_ms, event.remaining_ms)
    remaining_ms = max(event.remaining_ms - event.delay_ms, 0)
    following = InitialRebalanceExpired(group.group_id, delay_ms, remaining_ms)
    step.set_timer(join_key(group.group_id), delay_ms, following)
    return True
