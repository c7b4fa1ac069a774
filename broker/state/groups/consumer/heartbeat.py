"""ConsumerGroupHeartbeat (KIP-848): members join, stay and leave. Also the timers of members.

The order of the checks and the error codes are Kafka's, since clients can observe both.
"""

from __future__ import annotations

from collections.abc import Sequence

from kstore.broker.state.groups.classic.group import ClassicGroup
from kstore.broker.state.groups.consumer.conversion import downgrade, may_downgrade, upgrade
from kstore.broker.state.groups.consumer.group import CONSUMER_KIND, ConsumerGroup, Resolved
from kstore.broker.state.groups.consumer.member import (
    LEFT_EPOCH,
    NOTHING,
    STATIC_LEFT_EPOCH,
    UNKNOWN_STATE,
    UNREVOKED_PARTITIONS,
    Assigned,
    Member,
    current_assignment_record,
)
from kstore.broker.state.groups.consumer.metadata_hash import metadata_hash
from kstore.broker.state.groups.consumer.reconcile import Owned
from kstore.broker.state.groups.consumer.records import regex_record
from kstore.broker.state.groups.consumer.step import (
    ConsumerStep,
    Refusal,
    may_assign,
    session_timer,
)
from kstore.broker.state.groups.contract import Group, ShardState, absence
from kstore.broker.state.groups.result import GroupContext, Result, Token
from kstore.broker.state.groups.timers import RebalanceExpired, RegexesDue, SessionExpired
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from kstore.protocol.schema import Message

__all__ = [
    "expire_member",
    "fence",
    "heartbeat",
    "parked_answers",
    "request_problem",
    "resolve_regexes",
    "resume",
    "subscribe_dynamic",
    "subscribe_static",
]

FIRST_VERSION_WITH_CLIENT_IDS = 1
"""From this version on the client chooses its member id."""
REJOIN = "it must give up its partitions and join again."


def request_problem(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]
) -> Refusal | None:
    """The error of a request, independent of the group."""
    epoch = request.member_epoch
    needs_id = api_version >= FIRST_VERSION_WITH_CLIENT_IDS or epoch > 0 or epoch == LEFT_EPOCH
    problem = ""
    if needs_id and not request.member_id.strip():
        problem = "MemberId is blank: the member must generate one."
    elif not request.group_id.strip():
        problem = "GroupId is blank: send the group's id."
    elif request.instance_id is not None and not request.instance_id.strip():
        problem = "InstanceId is blank: send an id, or null."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId is blank: send a rack, or null."
    elif epoch == 0:
        problem = _join_problem(request)
    elif epoch == STATIC_LEFT_EPOCH and request.instance_id is None:
        problem = f"MemberEpoch {epoch} is for static members: send the InstanceId."
    elif epoch < STATIC_LEFT_EPOCH:
        problem = f"MemberEpoch {epoch} is not valid: the lowest is {STATIC_LEFT_EPOCH}."
    if problem:
        return Refusal(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        text = f"There is no ServerAssignor {request.server_assignor}: choose among {known}."
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    return None


def _join_problem(request: ConsumerGroupHeartbeatRequest) -> str:
    if request.rebalance_timeout_ms == -1:
        return "A member that joins must send RebalanceTimeoutMs."
    if request.topic_partitions is None or request.topic_partitions:
        return "A member that joins has no partitions yet: send an empty TopicPartitions."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "A member that joins must send SubscribedTopicNames or SubscribedTopicRegex."
    return ""


def heartbeat(
    shard: ShardState,
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Work[Result]:
    """Join (epoch 0), stay, or leave (epochs -1 and -2) a consumer group."""
    if request.member_epoch in (LEFT_EPOCH, STATIC_LEFT_EPOCH):
        result = yield from _leave(shard, group, request, ctx)
    else:
        result = yield from _stay(shard, group, request, ctx)
    if isinstance(result, Refusal):
        return Result(
            ConsumerGroupHeartbeatResponse(
                error_code=result.error_code, error_message=result.message
            )
        )
    return result


def _stay(
    shard: ShardState,
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Work[Result | Refusal]:
    step = yield from _open(shard, group, request, ctx)
    if isinstance(step, Refusal):
        return step
    member = _subscribe(step, request)
    if isinstance(member, Refusal):
        return member
    updated = _updated(member, request, ctx)
    topics_changed = step.update_member(member, updated)
    regex = step.update_regex(member, updated)
    if isinstance(regex, Refusal):
        return regex
    bump = topics_changed or regex[1]
    if bump or step.topics_may_differ():
        step.update_metadata(step.group.subscriptions_with(member, updated), bump=bump)
    owned = _owned(request.topic_partitions)
    target = yield from step.update_target(member, updated)
    if updated.state == UNKNOWN_STATE and owned != {}:
        text = f"Member {updated.member_id} is in a state that this broker does not know"
        return _fenced(f"{text}: {REJOIN}")
    changed = topics_changed or regex[0]
    updated = step.reconcile(updated, target, changed=changed, owned=owned)
    step.keep_session(updated.member_id)
    is_new = member.assigned != updated.assigned
    return step.result(_response(request, updated, ctx, with_assignment=is_new))


def quick_heartbeat(
    shard: ShardState,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Result | None:
    """See the table QUICK: the member is known, its fields are the same, it has reached its target,
    and no new target is due.
    """
    member = group.members.get(request.member_id)
    if (
        member is None
        or request.member_epoch != member.epoch
        or member.epoch <= 0
        or not member.is_reconciled_to(group.assignment_epoch)
        or (request.instance_id is not None and group.static_member(request.instance_id) != member)
        or member.regex
        or group.regexes
        or group.seen_image_version != ctx.topics.version
        or (group.assignment_epoch < group.epoch and may_assign(group, ctx))
        or _updated(member, request, ctx) != member
    ):
        return None
    timeout_ms = ctx.configs["consumer.session.timeout.ms"]
    timer = session_timer(group.group_id, member.member_id, timeout_ms)
    return Result(_response(request, member, ctx), timers=(timer,))


def _response(
    request: ConsumerGroupHeartbeatRequest,
    member: Member,
    ctx: GroupContext,
    *,
    with_assignment: bool = False,
) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=ctx.configs["consumer.heartbeat.interval.ms"],
    )
    if with_assignment or _is_full(request):
        response.assignment = _assignment(member.assigned)
    return response


def _open(
    shard: ShardState,
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Work[ConsumerStep | Refusal]:
    """A step on the group, which is created or converted if a member joins."""
    joining = request.member_epoch == 0
    group_id = request.group_id
    settings = shard.settings
    if isinstance(group, ConsumerGroup):
        step = ConsumerStep(group, ctx, settings)
    elif group is None:
        if not joining:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, absence(None, group_id, CONSUMER_KIND))
        step = ConsumerStep(ConsumerGroup(group_id), ctx, settings)
    elif joining and isinstance(group, ClassicGroup) and group.is_empty:
        step = ConsumerStep(ConsumerGroup(group_id), ctx, settings)
        step.records += group.tombstones()
    elif joining and isinstance(group, ClassicGroup):
        upgraded = yield from upgrade(group, ctx, settings)
        if isinstance(upgraded, Refusal):
            return upgraded
        step = upgraded
    else:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, absence(group, group_id, CONSUMER_KIND))
    is_new = request.member_id not in step.group.members
    if is_new and len(step.group.members) >= settings.consumer_max_size:
        text = f"Group {group_id} is full: group.consumer.max.size is {settings.consumer_max_size}."
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    return step


def _fenced(message: str) -> Refusal:
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _subscribe(step: ConsumerStep, request: ConsumerGroupHeartbeatRequest) -> Member | Refusal:
    """The member before this request, or a new one. A Refusal if its epoch is wrong."""
    joining = request.member_epoch == 0
    member_id = request.member_id or step.ctx.new_id
    if request.instance_id is None:
        member = subscribe_dynamic(step, member_id, create=joining)
    else:
        member = subscribe_static(step, member_id, request.instance_id, create=joining)
    if isinstance(member, Refusal) or joining:
        return member
    return _check_epoch(member, request) or member


def subscribe_dynamic(step: ConsumerStep, member_id: str, *, create: bool) -> Member | Refusal:
    """The member with this id, created if allowed."""
    member = step.group.members.get(member_id)
    if member is not None:
        return member
    if create:
        return Member(member_id)
    text = f"Group {step.group.group_id} has no member {member_id}: join with epoch 0."
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, text)


def subscribe_static(
    step: ConsumerStep, member_id: str, instance_id: str, *, create: bool, classic: bool = False
) -> Member | Refusal:
    """The member with this instance id. A member that joins replaces one that has left. A member of
    the classic protocol can replace any member, and any member can replace it.
    """
    present = step.group.static_member(instance_id)
    if not create:
        if present is None:
            text = f"Group {step.group.group_id} has no instance id {instance_id}: join again."
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return static_fence(present, member_id, instance_id) or present
    if present is None:
        return step.group.members.get(member_id) or Member(member_id)
    if not classic and present.classic is None and present.epoch != STATIC_LEFT_EPOCH:
        text = f"Instance id {instance_id} is taken by member {present.member_id}"
        return Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"{text}: stop it before {member_id} joins."
        )
    return step.replace_static(present, member_id)


def static_fence(present: Member, member_id: str, instance_id: str) -> Refusal | None:
    """The refusal if another member has the instance id."""
    if present.member_id == member_id:
        return None
    text = f"Instance id {instance_id} now belongs to member {present.member_id}"
    return Refusal(ErrorCode.FENCED_INSTANCE_ID, f"{text}: {member_id} must stop.")


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
    """Check that the epoch is the member's, or the previous one if the response with the new one
    was lost. In that case the client cannot own more than it was assigned.
    """
    epoch = request.member_epoch
    if epoch == member.epoch:
        return None
    if epoch < member.epoch:
        owned = _owned(request.topic_partitions)
        if epoch == member.previous_epoch and owned is not None and _is_subset(owned, member):
            return None
    text = f"Member {member.member_id} sent epoch {epoch} and has {member.epoch}"
    return _fenced(f"{text}: {REJOIN}")


def _is_subset(owned: Owned, member: Member) -> bool:
    return all(
        topic in member.assigned and indexes <= member.assigned[topic].keys()
        for topic, indexes in owned.items()
    )


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, ctx: GroupContext) -> Member:
    """The member with the request's values. Null or -1 means no change."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        client_id=ctx.client_id,
        client_host=ctx.client_host,
        classic=None,
    )


def _owned(
    partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None,
) -> Owned | None:
    if partitions is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in partitions}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the client sends all fields, so that it may not know its assignment."""
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _assignment(assigned: Assigned) -> ConsumerGroupHeartbeatResponseAssignment:
    return ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=topic_id, partitions=sorted(partitions)
            )
            for topic_id, partitions in assigned.items()
        ]
    )


def _leave(
    shard: ShardState,
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Work[Result | Refusal]:
    group_id = request.group_id
    if not isinstance(group, ConsumerGroup):
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, absence(group, group_id, CONSUMER_KIND))
    step = ConsumerStep(group, ctx, shard.settings)
    if request.instance_id is None:
        member = subscribe_dynamic(step, request.member_id, create=False)
    else:
        member = subscribe_static(step, request.member_id, request.instance_id, create=False)
    if isinstance(member, Refusal):
        return member
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=request.member_epoch
    )
    if request.instance_id is None or request.member_epoch == LEFT_EPOCH:
        return (yield from fence(shard, group, [member], ctx, response))
    # The member will return with another id. Its partitions are reserved for it, and count as newly
    # assigned then.
    assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
    away = member._replace(epoch=STATIC_LEFT_EPOCH, assigned=assigned, revoking=NOTHING)
    step.records.append(current_assignment_record(group_id, away))
    return step.result(response)


def fence(
    shard: ShardState,
    group: ConsumerGroup,
    members: list[Member],
    ctx: GroupContext,
    response: Message | None = None,
) -> Work[Result]:
    """Remove members. The group becomes a classic one if only classic members are left."""
    if not members:
        return Result(response)
    if may_downgrade(group, members, shard.settings):
        settings = shard.settings
        return (
            yield from downgrade(
                group, members, None, ctx, settings, rebalance=True, answer=response
            )
        )
    step = ConsumerStep(group, ctx, shard.settings)
    step.remove_members(members)
    return step.result(response)


def expire_member(
    shard: ShardState,
    group: ConsumerGroup,
    event: SessionExpired | RebalanceExpired,
    ctx: GroupContext,
) -> Work[Result]:
    """Remove a member whose session or rebalance timeout expired."""
    member = group.members.get(event.member_id)
    if member is None:
        return Result()
    in_time = isinstance(event, RebalanceExpired) and event.member_epoch not in (-1, member.epoch)
    return Result() if in_time else (yield from fence(shard, group, [member], ctx))


def resolve_regexes(
    shard: ShardState, group: ConsumerGroup, event: RegexesDue, ctx: GroupContext
) -> Result:
    """Apply the topics that the group's regular expressions match. A change increases the group
    epoch.
    """
    step = ConsumerStep(group, ctx, shard.settings)
    image = ctx.topics
    differs = False
    topics = group.subscriptions.named
    for regex in sorted(group.subscriptions.regexes):
        last = group.regexes.get(regex)
        known = last.topics if last is not None else frozenset()
        found = ctx.found[regex]
        differs = differs or found != known
        topics |= found
        resolved = Resolved(found, image.version, ctx.now_ms)
        step.records.append(regex_record(group.group_id, regex, resolved))
    known_hash = metadata_hash(image, topics)
    if differs or known_hash != group.metadata_hash:
        step.bump_epoch(known_hash)
    step.mark_regexes_resolved()
    return step.result()


def resume(shard: ShardState, group: ConsumerGroup, ctx: GroupContext) -> Work[Result]:
    """After replay: restart sessions and rebalance timers."""
    step = ConsumerStep(group, ctx, shard.settings)
    for member in group.members.values():
        step.keep_session(member.member_id)
        if member.state == UNREVOKED_PARTITIONS:
            step.set_rebalance_timer(member)
        yield
    return step.result()


def parked_answers(group: ConsumerGroup) -> list[tuple[Token, Message]]:
    """Empty: no request waits in a consumer group."""
    return []
