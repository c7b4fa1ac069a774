"""JoinGroup of the classic protocol, versions 0 to 9.

KIP-394 (a client first requests a member id), KIP-345 (static members), KIP-559 (protocol type),
KIP-800 (reasons, skipped assignment). Step collects records and timers.
"""

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
from kstore.broker.state.groups.classic.records import metadata_record
from kstore.broker.state.groups.classic.step import UNKNOWN_MEMBER_ID, Step
from kstore.broker.state.groups.contract import Group, ShardState
from kstore.broker.state.groups.result import Edit, GroupContext, Result
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.groups.timers import TimerChange
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

__all__ = ["join_emptied_group", "join_group", "quick_join"]

FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9


def join_group(
    shard: ShardState,
    group: ClassicGroup | None,
    request: JoinGroupRequest,
    ctx: GroupContext,
) -> Work[Result]:
    """Decide about a join of ``group``, or of a group that does not exist yet."""
    settings = shard.settings
    error_code = _request_error(group, request, settings)
    if error_code != ErrorCode.NONE:
        return Result(_failure(request.member_id, error_code))
    is_new_group = group is None
    step = Step(group or ClassicGroup(request.group_id, ctx.now_ms), ctx, settings)
    response = yield from _join(step, request)
    if is_new_group and not step.records:
        # The group is visible at once. Its members are visible when a generation is complete.
        empty = ClassicGroup(request.group_id, ctx.now_ms)
        step.records.append((yield from metadata_record(empty)))
    return step.result(response)


def quick_join(
    shard: ShardState, group: ClassicGroup, request: JoinGroupRequest, ctx: GroupContext
) -> Result | None:
    """See the table QUICK: a client that gets a member id, or a member that waits for others to
    join.
    """
    member_id = request.member_id
    names = [protocol.name for protocol in request.protocols]
    if (
        _request_error(group, request, shard.settings) != ErrorCode.NONE
        or not _accepts(group, member_id, shard.settings.max_size)
        or not group.supports(request.protocol_type, names)
    ):
        return None
    if member_id == UNKNOWN_MEMBER_ID:
        return _quick_id(group, request, ctx)
    if group.state != PREPARING_REBALANCE:
        return None
    known = group.members.get(member_id)
    if known is None:
        if member_id not in group.pending_join or request.group_instance_id is not None:
            return None
        member = _member(ctx, request, member_id)
        timers: tuple[TimerChange, ...] = (
            session_timer(group.group_id, member, shard.settings.new_member_join_timeout_ms),
        )
        left = len(group.members) - group.joined + len(group.pending_join) - 1
    else:
        if (
            known.awaiting_join is not None
            or member_error(group, member_id, request.group_instance_id) != ErrorCode.NONE
            or known.protocols != _protocols(request)
        ):
            return None
        member, timers = _joining(known, request, ctx), ()
        left = len(group.members) - group.joined - 1 + len(group.pending_join)
    if left == 0 and group.previous_state != EMPTY:
        return None  # the join phase ends
    return Result(timers=timers, edit=Edit(group.group_id, member))


def _quick_id(group: ClassicGroup, request: JoinGroupRequest, ctx: GroupContext) -> Result | None:
    if (
        request.group_instance_id is not None
        or ctx.api_version < FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
    ):
        return None
    pending = _member(ctx, request, f"{ctx.client_id}-{ctx.new_id}")
    return Result(
        _failure(pending.member_id, ErrorCode.MEMBER_ID_REQUIRED),
        timers=(session_timer(group.group_id, pending),),
        edit=Edit(group.group_id, pending=pending.member_id),
    )


def join_emptied_group(
    shard: ShardState, group: Group, request: JoinGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Join a group of another kind: one without members becomes a classic group."""
    if not group.is_empty:
        return Result(_failure(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    result = yield from join_group(shard, None, request, ctx)
    if not result.records:
        return result
    return result._replace(records=(*group.tombstones(), *result.records))


def _request_error(
    group: ClassicGroup | None, request: JoinGroupRequest, settings: GroupSettings
) -> int:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if group is None and request.member_id != UNKNOWN_MEMBER_ID:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _failure(member_id: str, error_code: int) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=error_code)


def _join(step: Step, request: JoinGroupRequest) -> Work[JoinGroupResponse | None]:
    group = step.group
    member_id = request.member_id
    if not _accepts(group, member_id, step.settings.max_size):
        if member_id in group.members:
            step.drop_member(member_id)
        return _failure(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
    names = [protocol.name for protocol in request.protocols]
    if not group.supports(request.protocol_type, names):
        return _failure(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member_id == UNKNOWN_MEMBER_ID:
        return (yield from _join_without_id(step, request))
    return (yield from _join_with_id(step, request))


def _accepts(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Whether the group has room for the member. During a join phase, only members that have joined
    count, so late ones are refused.
    """
    member = group.members.get(member_id)
    if group.state == EMPTY:
        return True
    if group.state == PREPARING_REBALANCE:
        already_in = member is not None and member.awaiting_join is not None
        return already_in or group.joined < max_size
    return member is not None or len(group.members) < max_size


def _join_without_id(step: Step, request: JoinGroupRequest) -> Work[JoinGroupResponse | None]:
    group = step.group
    prefix = request.group_instance_id
    if prefix is None:
        prefix = step.ctx.client_id
    member_id = f"{prefix}-{step.ctx.new_id}"
    if request.group_instance_id is not None:
        if request.group_instance_id in group.static_members:
            return (yield from _replace_static_member(step, request, member_id))
        yield from _add_member(step, request, member_id)
        return None
    if step.ctx.api_version < FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
        yield from _add_member(step, request, member_id)
        return None
    group.pending_join.add(member_id)
    pending = _member(step.ctx, request, member_id)
    step.expect_heartbeat(pending)
    return _failure(member_id, ErrorCode.MEMBER_ID_REQUIRED)


def _join_with_id(step: Step, request: JoinGroupRequest) -> Work[JoinGroupResponse | None]:
    group = step.group
    member_id = request.member_id
    if member_id in group.pending_join:
        if request.group_instance_id is not None:  # only dynamic members have pending ids
            return _failure(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        yield from _add_member(step, request, member_id)
        return None
    error_code = member_error(group, member_id, request.group_instance_id)
    if error_code != ErrorCode.NONE:
        response = _failure(member_id, error_code)
        response.protocol_name = None
        return response
    if group.state == EMPTY:
        return _failure(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    changed = group.members[member_id].protocols != _protocols(request)
    # A leader's join in a stable group requests a rebalance: it may have seen new partitions.
    leads_stable = group.state == STABLE and group.leader_id == member_id
    if group.state == PREPARING_REBALANCE or changed or leads_stable:
        _update_member(step, request, member_id)
        yield from step.rebalance_or_complete_join()
        return None
    response = yield from step.join_response(member_id)
    if group.state == STABLE:
        response.members = []
    return response


def _add_member(step: Step, request: JoinGroupRequest, member_id: str) -> Work[None]:
    step.group.note_new_member()
    member = _member(step.ctx, request, member_id)
    step.group.add(member)
    # The member cannot send heartbeats before it has the response, and a closed connection is not
    # noticed while its join is parked. So a join that takes too long is dropped, and the client may
    # retry.
    step.expect_heartbeat(member, step.settings.new_member_join_timeout_ms)
    yield from step.rebalance_or_complete_join()


def _update_member(step: Step, request: JoinGroupRequest, member_id: str) -> None:
    step.answer_join(member_id, _failure(member_id, ErrorCode.REBALANCE_IN_PROGRESS))
    step.group.put(_joining(step.group.members[member_id], request, step.ctx))


def _joining(member: ClassicMember, request: JoinGroupRequest, ctx: GroupContext) -> ClassicMember:
    """The member once it has joined again."""
    return member._replace(
        protocols=_protocols(request),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        awaiting_join=ctx.token,
    )


def _replace_static_member(
    step: Step, request: JoinGroupRequest, new_member_id: str
) -> Work[JoinGroupResponse | None]:
    """Replace a static member that has returned without its member id. The old id is fenced. A
    stable group need not rebalance.
    """
    group = step.group
    instance_id = request.group_instance_id or ""
    old_member_id = group.static_members[instance_id]
    old_leader_id = group.leader_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    rejected = _failure(old_member_id, fenced)
    rejected.protocol_name = None
    step.answer_join(old_member_id, rejected)
    step.answer_sync(old_member_id, SyncGroupResponse(error_code=fenced))
    step.forget_heartbeat(old_member_id)
    step.expect_heartbeat(group.rename_static(instance_id, new_member_id))
    _update_member(step, request, new_member_id)
    if group.state == COMPLETING_REBALANCE:
        # The leader may already be assigning to the old id.
        yield from step.prepare_rebalance()
    elif group.state != STABLE:
        yield from step.maybe_complete_join()
    elif (yield from group.select_protocol()) != (group.protocol_name or ""):
        yield from step.rebalance_or_complete_join()
    else:
        step.records.append((yield from metadata_record(group)))
        response = yield from step.join_response(new_member_id)
        if step.ctx.api_version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
            response.skip_assignment = group.leader_id == new_member_id
        else:
            # An older client that is named as leader would send a new assignment, so the response
            # names the old leader's id.
            response.members = []
            response.leader = old_leader_id or ""
        step.answer_join(new_member_id, response)
    return None


def _member(ctx: GroupContext, request: JoinGroupRequest, member_id: str) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=ctx.client_id,
        client_host=ctx.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=_protocols(request),
        awaiting_join=ctx.token,
        is_new=True,
    )


def _protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
