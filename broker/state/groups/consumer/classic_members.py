"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and
LeaveGroup while a live group changes its protocol (KIP-848).

The coordinator makes the assignment, and the member receives it as if a leader had made it.
Generations are member epochs.
"""

from __future__ import annotations

from kstore.broker.state.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from kstore.broker.state.groups.classic.join import join_emptied_group
from kstore.broker.state.groups.consumer.conversion import (
    assignment_bytes,
    downgrade,
    may_downgrade,
    subscription_of,
)
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.consumer.heartbeat import (
    fence,
    static_fence,
    subscribe_dynamic,
    subscribe_static,
)
from kstore.broker.state.groups.consumer.member import (
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ClassicMetadata,
    Member,
)
from kstore.broker.state.groups.consumer.reconcile import Owned
from kstore.broker.state.groups.consumer.step import ConsumerStep, Refusal, timer_key
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.timers import RebalanceExpired
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kstore.protocol.groups.consumer_protocol import ConsumerProtocolSubscription

__all__ = ["heartbeat", "join", "leave", "sync"]

FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
UNKNOWN_MEMBER_ID = ""


def join(
    shard: ShardState, group: ConsumerGroup, request: JoinGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Join with the classic protocol. A group without members becomes a classic group."""
    if group.is_empty:
        return (yield from join_emptied_group(shard, group, request, ctx))
    member_id = request.member_id or ctx.new_id
    error_code = _join_error(shard, group, request, member_id)
    if error_code != ErrorCode.NONE:
        known = request.member_id if error_code != ErrorCode.GROUP_MAX_SIZE_REACHED else ""
        return Result(JoinGroupResponse(member_id=known, error_code=error_code))
    if (
        not request.member_id
        and request.group_instance_id is None
        and ctx.api_version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
    ):
        required = ErrorCode.MEMBER_ID_REQUIRED
        return Result(JoinGroupResponse(member_id=member_id, error_code=required))
    subscription = subscription_of(bytes(request.protocols[0].metadata))
    if subscription is None:
        error_code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return Result(JoinGroupResponse(member_id=request.member_id, error_code=error_code))
    step = ConsumerStep(group, ctx, shard.settings)
    if request.group_instance_id is None:
        member = subscribe_dynamic(step, member_id, create=True)
    else:
        member = subscribe_static(
            step,
            member_id,
            request.group_instance_id,
            create=not request.member_id,
            classic=True,
        )
    if isinstance(member, Refusal):
        failed = JoinGroupResponse(member_id=request.member_id, error_code=member.error_code)
        return Result(failed)
    return (yield from _joined(step, member, request, subscription))


def _join_error(
    shard: ShardState, group: ConsumerGroup, request: JoinGroupRequest, member_id: str
) -> int:
    settings = shard.settings
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if settings.consumer_migration_policy == "disabled":
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if len(group.members) >= settings.consumer_max_size and member_id not in group.members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    names = {protocol.name for protocol in request.protocols}
    for member in group.members.values():
        if member.classic is not None:
            names &= {name for name, _ in member.classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _joined(
    step: ConsumerStep,
    member: Member,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
) -> Work[Result]:
    group, ctx = step.group, step.ctx
    replaced = group.static_member(request.group_instance_id)
    leaves_classic = (
        replaced is not None
        and replaced.classic is None
        and all(m.classic is not None for m in group.members.values() if m is not replaced)
    )
    updated = _updated(member, request, subscription, ctx)
    bump = step.update_member(member, updated)
    regex = step.update_regex(member, updated)
    assert not isinstance(regex, Refusal)  # a classic member has no rack
    bump = bump or regex[0]
    if bump or step.topics_may_differ():
        step.update_metadata(group.subscriptions_with(member, updated), bump=bump)
    owned = _owned(subscription, ctx)
    if replaced is not None and leaves_classic and _fits(step, replaced):
        rebalance = group.assignment_epoch < step.epoch
        if not rebalance:
            target = group.assignment_epoch, group.target_of(replaced.member_id)
            updated = step.reconcile(updated, target, changed=bump, owned=owned)
        answer = _answer(updated)
        before = tuple(step.records)
        return (
            yield from downgrade(
                group,
                [],
                updated,
                ctx,
                step.settings,
                rebalance=rebalance,
                answer=answer,
                before=before,
            )
        )
    target = yield from step.update_target(member, updated)
    updated = step.reconcile(updated, target, changed=bump, owned=owned)
    step.cancel_timer("rejoin", updated.member_id)
    step.keep_session(updated.member_id, request.session_timeout_ms)
    event = RebalanceExpired(group.group_id, updated.member_id)
    key = timer_key("sync", group.group_id, updated.member_id)
    step.set_timer(key, request.rebalance_timeout_ms, event)
    return step.result(_answer(updated))


def _fits(step: ConsumerStep, replaced: Member) -> bool:
    """Whether the group may become a classic one with a member that replaces ``replaced``."""
    alone = len(step.group.members) == 1
    policy = step.settings.consumer_migration_policy in ("bidirectional", "downgrade")
    return policy and (alone or may_downgrade(step.group, [replaced], step.settings))


def _updated(
    member: Member,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    ctx: GroupContext,
) -> Member:
    timeout_ms = request.rebalance_timeout_ms
    protocols = tuple((item.name, bytes(item.metadata)) for item in request.protocols)
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=ctx.client_id,
        client_host=ctx.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )


def _owned(subscription: ConsumerProtocolSubscription, ctx: GroupContext) -> Owned:
    topics = ctx.topics.topics
    return {
        topics[owned.topic].topic_id: frozenset(owned.partitions)
        for owned in subscription.owned_partitions
        if owned.topic in topics
    }


def _answer(member: Member) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
    )


def sync(
    shard: ShardState, group: ConsumerGroup, request: SyncGroupRequest, ctx: GroupContext
) -> Result:
    """Return a classic member's assignment."""
    member = _member_of(group, request.member_id, request.group_instance_id)
    if isinstance(member, Refusal):
        return Result(SyncGroupResponse(error_code=member.error_code))
    error_code = _classic_error(member, request.generation_id)
    if error_code != ErrorCode.NONE or member.classic is None:
        return Result(SyncGroupResponse(error_code=error_code))
    name, metadata = member.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
        request.protocol_name not in (None, name)
    ):
        return Result(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    step = ConsumerStep(group, ctx, shard.settings)
    if group.assignment_epoch > member.epoch and member.state != UNREVOKED_PARTITIONS:
        _expect_rejoin(step, member)
        return step.result(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    step.cancel_timer("sync", member.member_id)
    step.keep_session(member.member_id, member.classic.session_timeout_ms)
    owned = {topic: frozenset(epochs) for topic, epochs in member.assigned.items()}
    return step.result(
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(owned, ctx.topics, metadata),
        )
    )


def heartbeat(
    shard: ShardState, group: ConsumerGroup, request: HeartbeatRequest, ctx: GroupContext
) -> Result:
    """Extend a classic member's session. REBALANCE_IN_PROGRESS if its assignment changes."""
    member = _member_of(group, request.member_id, request.group_instance_id)
    if isinstance(member, Refusal):
        return Result(HeartbeatResponse(error_code=member.error_code))
    error_code = _classic_error(member, request.generation_id)
    if error_code != ErrorCode.NONE or member.classic is None:
        return Result(HeartbeatResponse(error_code=error_code))
    step = ConsumerStep(group, ctx, shard.settings)
    step.keep_session(member.member_id, member.classic.session_timeout_ms)
    if (
        member.epoch < group.assignment_epoch
        or member.state == UNREVOKED_PARTITIONS
        or (member.state == UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
    ):
        error_code = ErrorCode.REBALANCE_IN_PROGRESS
        _expect_rejoin(step, member)
    return step.result(HeartbeatResponse(error_code=error_code))


def _expect_rejoin(step: ConsumerStep, member: Member) -> None:
    group_id = step.group.group_id
    key = timer_key("rejoin", group_id, member.member_id)
    event = RebalanceExpired(group_id, member.member_id)
    step.set_timer(key, member.rebalance_timeout_ms, event, only_if_absent=True)


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    return any(
        partition not in member.assigned.get(topic, {}) and group.is_owned(topic, partition)
        for topic, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def _member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member | Refusal:
    unknown = Refusal(ErrorCode.UNKNOWN_MEMBER_ID, "")
    if instance_id is None:
        return group.members.get(member_id, unknown)
    present = group.static_member(instance_id)
    if present is None:
        return unknown
    return static_fence(present, member_id, instance_id) or present


def _classic_error(member: Member, generation_id: int) -> int:
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation_id == member.epoch else ErrorCode.ILLEGAL_GENERATION


def leave(
    shard: ShardState, group: ConsumerGroup, request: LeaveGroupRequest, ctx: GroupContext
) -> Work[Result]:
    """Remove members of any protocol by their member id or, for administrators, by their instance
    id.
    """
    leaving: dict[str, Member] = {}
    answers: list[MemberResponse] = []
    for identity in request.members:
        found = _leaving(group, identity)
        error_code = found.error_code if isinstance(found, Refusal) else ErrorCode.NONE
        if isinstance(found, Member):
            leaving[found.member_id] = found
        answers.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error_code,
            )
        )
        yield
    answer = LeaveGroupResponse(members=answers)
    return (yield from fence(shard, group, list(leaving.values()), ctx, answer))


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member | Refusal:
    instance_id = identity.group_instance_id
    present = group.static_member(instance_id)
    if present is not None and identity.member_id == UNKNOWN_MEMBER_ID:
        return present
    return _member_of(group, identity.member_id, instance_id)
