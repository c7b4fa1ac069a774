"""ShareGroupHeartbeat (KIP-932): members join, stay and leave. Also the timers of members.

The order of the checks and the error codes are Kafka's, since clients can observe both.
"""

from __future__ import annotations

from typing import NamedTuple

from kstore.broker.state.groups.contract import Group, ShardState, absence
from kstore.broker.state.groups.result import GroupContext, Result, Token
from kstore.broker.state.groups.share.group import SHARE_KIND, ShareGroup
from kstore.broker.state.groups.share.member import LEFT_EPOCH, Assigned, Member
from kstore.broker.state.groups.share.step import ShareStep
from kstore.broker.state.groups.timers import SessionExpired
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.schema import Message
from kstore.protocol.shares.heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatResponseAssignment,
    ShareGroupHeartbeatResponseTopicPartitions,
)

__all__ = ["Refusal", "expire_member", "heartbeat", "parked_answers", "request_problem", "resume"]

MAX_MEMBER_ID = 36
REJOIN = "it must give up its partitions and join again."


class Refusal(NamedTuple):
    """Why a request is refused."""

    error_code: int
    message: str


def request_problem(request: ShareGroupHeartbeatRequest) -> Refusal | None:
    """The error of a request, independent of the group."""
    epoch = request.member_epoch
    problem = ""
    if not request.member_id.strip():
        problem = "MemberId is blank: the member must generate one."
    elif len(request.member_id) > MAX_MEMBER_ID:
        problem = (
            f"MemberId has {len(request.member_id)} characters: at most {MAX_MEMBER_ID} are "
            "allowed."
        )
    elif not request.group_id.strip():
        problem = "GroupId is blank: send the group's id."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId is blank: send a rack, or null."
    elif epoch == 0 and not request.subscribed_topic_names:
        problem = "A member that joins must send SubscribedTopicNames."
    elif epoch < LEFT_EPOCH:
        problem = f"MemberEpoch {epoch} is not valid: the lowest is {LEFT_EPOCH}."
    return Refusal(ErrorCode.INVALID_REQUEST, problem) if problem else None


def heartbeat(
    shard: ShardState,
    group: Group | None,
    request: ShareGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Work[Result]:
    """Join (epoch 0), stay, or leave (epoch -1) a share group."""
    if request.member_epoch == LEFT_EPOCH:
        result = _leave(group, request, ctx)
    else:
        result = yield from _stay(shard, group, request, ctx)
    if isinstance(result, Refusal):
        return Result(
            ShareGroupHeartbeatResponse(error_code=result.error_code, error_message=result.message)
        )
    return result


def _stay(
    shard: ShardState,
    group: Group | None,
    request: ShareGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Work[Result | Refusal]:
    opened = _open(shard, group, request)
    if isinstance(opened, Refusal):
        return opened
    joining = request.member_epoch == 0
    member = opened.members.get(request.member_id)
    if member is None and not joining:
        return _unknown(opened, request)
    member = member or Member(request.member_id)
    refusal = None if joining else _epoch_refusal(member, request.member_epoch)
    if refusal is not None:
        return refusal
    step = ShareStep(opened, ctx)
    updated = _updated(member, request, ctx)
    changed = step.update_member(member, updated)
    step.update_metadata(bump=changed or step.has_unassigned())
    target = yield from step.update_target(updated.member_id)
    moved = step.reconcile(updated, *target)
    step.initialize()
    step.keep_session(moved.member_id)
    response = ShareGroupHeartbeatResponse(
        member_id=moved.member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=ctx.configs["share.heartbeat.interval.ms"],
    )
    # A member that sends its topics may have missed the response with its partitions.
    has_topics = request.subscribed_topic_names is not None
    if joining or has_topics or moved.assigned != member.assigned:
        response.assignment = _assignment(moved.assigned)
    return step.result(response)


def _open(
    shard: ShardState, group: Group | None, request: ShareGroupHeartbeatRequest
) -> ShareGroup | Refusal:
    """The group, which is created if a member joins."""
    group_id = request.group_id
    if isinstance(group, ShareGroup):
        opened = group
    elif group is None and request.member_epoch == 0:
        opened = ShareGroup(group_id)
    else:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, absence(group, group_id, SHARE_KIND))
    most = shard.settings.share_max_size
    if request.member_id not in opened.members and len(opened.members) >= most:
        text = f"Group {group_id} is full: group.share.max.size is {most}."
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    return opened


def _unknown(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> Refusal:
    text = f"Group {group.group_id} has no member {request.member_id}: it must join."
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, text)


def _epoch_refusal(member: Member, epoch: int) -> Refusal | None:
    """The refusal of a wrong epoch. The member's epoch is valid, and the previous one, since the
    response with the new one may have been lost.
    """
    if epoch in (member.epoch, member.previous_epoch):
        return None
    text = f"Member {member.member_id} sent epoch {epoch} and has {member.epoch}: {REJOIN}"
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _updated(member: Member, request: ShareGroupHeartbeatRequest, ctx: GroupContext) -> Member:
    """The member with the request's values. Null means no change."""
    names = request.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if names is None else frozenset(names),
        client_id=ctx.client_id,
        client_host=ctx.client_host,
    )


def _assignment(assigned: Assigned) -> ShareGroupHeartbeatResponseAssignment:
    return ShareGroupHeartbeatResponseAssignment(
        topic_partitions=[
            ShareGroupHeartbeatResponseTopicPartitions(
                topic_id=topic_id, partitions=sorted(partitions)
            )
            for topic_id, partitions in assigned.items()
        ]
    )


def _leave(
    group: Group | None, request: ShareGroupHeartbeatRequest, ctx: GroupContext
) -> Result | Refusal:
    group_id = request.group_id
    if not isinstance(group, ShareGroup):
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, absence(group, group_id, SHARE_KIND))
    member = group.members.get(request.member_id)
    if member is None:
        return _unknown(group, request)
    step = ShareStep(group, ctx)
    step.remove_members([member])
    response = ShareGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    return step.result(response)


def expire_member(
    shard: ShardState, group: ShareGroup, event: SessionExpired, ctx: GroupContext
) -> Result:
    """Remove a member whose session expired."""
    member = group.members.get(event.member_id)
    if member is None:
        return Result()
    step = ShareStep(group, ctx)
    step.remove_members([member])
    return step.result()


def resume(shard: ShardState, group: ShareGroup, ctx: GroupContext) -> Work[Result]:
    """After replay: restart sessions."""
    step = ShareStep(group, ctx)
    for member_id in group.members:
        step.keep_session(member_id)
        yield
    return step.result()


def parked_answers(group: ShareGroup) -> list[tuple[Token, Message]]:
    """Empty: no request waits in a share group."""
    return []
