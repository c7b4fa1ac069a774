"""Changes the protocol of a live group (KIP-848). A classic group becomes a consumer group when the
first member with the consumer protocol joins, and a classic group again when the last one leaves.

No member loses a partition: the last assignment stays, and a rebalance follows.
"""

from __future__ import annotations

from uuid import UUID

from kstore.broker.state.groups.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    STABLE,
    ClassicGroup,
    ClassicMember,
)
from kstore.broker.state.groups.classic.records import metadata_record
from kstore.broker.state.groups.classic.step import Step
from kstore.broker.state.groups.consumer.group import ConsumerGroup, Target
from kstore.broker.state.groups.consumer.member import (
    ClassicMetadata,
    Member,
    current_assignment_record,
    member_record,
)
from kstore.broker.state.groups.consumer.metadata_hash import metadata_hash
from kstore.broker.state.groups.consumer.records import (
    epoch_record,
    target_epoch_record,
    target_record,
)
from kstore.broker.state.groups.consumer.step import ConsumerStep, Refusal
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.work import Work, each
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.groups.classic import JoinGroupResponse, SyncGroupResponse
from kstore.protocol.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from kstore.protocol.schema import Message

__all__ = ["assignment_bytes", "downgrade", "may_downgrade", "subscription_of", "upgrade"]

VERSION_BYTES = 2


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """A consumer's subscription. None if it is malformed."""
    try:
        return ConsumerProtocolSubscription.decode(
            metadata, _version(metadata, ConsumerProtocolSubscription), offset=VERSION_BYTES,
            allow_trailing=True,
        )  # fmt: skip
    except ProtocolError:
        return None


def assignment_bytes(target: Target, image: MetadataImage, metadata: bytes) -> bytes:
    """An assignment in the format of classic consumers, with the version of the member's
    subscription.
    """
    topics = ((image.topic_by_id(topic_id), indexes) for topic_id, indexes in target.items())
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=sorted(indexes))
            for topic, indexes in topics
            if topic is not None
        ]
    )
    version = _version(metadata, ConsumerProtocolAssignment)
    return version.to_bytes(VERSION_BYTES, "big") + assignment.encode(version)


def _version(data: bytes, message: type[Message]) -> int:
    """The version at the start of embedded data. A newer version is read as the newest known
    one.
    """
    if len(data) < VERSION_BYTES:
        raise ProtocolError(f"a consumer's metadata has only {len(data)} bytes")
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if version < message.MIN_VERSION:
        raise ProtocolError(f"a consumer's metadata has version {version}")
    return min(version, message.MAX_VERSION)


def _assigned_to(member: ClassicMember, image: MetadataImage) -> Target | str:
    """The assignment of a classic member, or why it cannot be converted."""
    if not member.assignment:
        return {}
    try:
        version = _version(member.assignment, ConsumerProtocolAssignment)
        assignment = ConsumerProtocolAssignment.decode(
            member.assignment, version, offset=VERSION_BYTES, allow_trailing=True
        )
    except ProtocolError:
        return f"the assignment of member {member.member_id} can't be read."
    if assignment.user_data:
        return (
            f"member {member.member_id} has an assignor with its own data: let all members use one "
            "of the client's own assignors first."
        )
    target: dict[UUID, frozenset[int]] = {}
    for topic in assignment.assigned_partitions:
        known = image.topics.get(topic.topic)
        if known is not None:
            target[known.topic_id] = frozenset(topic.partitions)
    return target


def upgrade(
    classic: ClassicGroup, ctx: GroupContext, settings: GroupSettings
) -> Work[ConsumerStep | Refusal]:
    """Convert a classic group with members. Returns a step on the consumer group."""
    why_not = ""
    if settings.consumer_migration_policy not in ("bidirectional", "upgrade"):
        why_not = (
            "group.consumer.migration.policy is "
            f"{settings.consumer_migration_policy}: set it to upgrade or bidirectional."
        )
    elif classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        why_not = (
            f"its members have the protocol type {classic.protocol_type!r}, not "
            f"{CONSUMER_PROTOCOL_TYPE!r}."
        )
    elif len(classic.members) > settings.consumer_max_size:
        why_not = (
            f"it has {len(classic.members)} members, and group.consumer.max.size allows "
            f"{settings.consumer_max_size}."
        )
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = classic.generation_id
    for old in () if why_not else classic.members.values():
        target = _assigned_to(old, ctx.topics)
        subscription = subscription_of(_metadata(old, classic))
        if isinstance(target, str) or subscription is None:
            malformed = f"the subscription of member {old.member_id} can't be read."
            why_not = target if isinstance(target, str) else malformed
            break
        group.target[old.member_id] = target
        group.put(_converted(old, subscription, target, classic.generation_id))
        yield
    if why_not:
        text = f"Classic group {classic.group_id} can't become a consumer group: {why_not}"
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, text)
    known = group.subscribed_topics(group.subscriptions)
    group.metadata_hash = metadata_hash(ctx.topics, known)
    step = ConsumerStep(group, ctx, settings)
    step.records += classic.tombstones()
    step.records += yield from _records(group)
    _answer_parked(step, classic)
    for member in group.members.values():
        assert member.classic is not None
        step.keep_session(member.member_id, member.classic.session_timeout_ms)
        yield
    return step


def _metadata(member: ClassicMember, classic: ClassicGroup) -> bytes:
    return member.metadata(classic.protocol_name) or member.protocols[0][1]


def _converted(
    old: ClassicMember,
    subscription: ConsumerProtocolSubscription,
    target: Target,
    generation_id: int,
) -> Member:
    return Member(
        member_id=old.member_id,
        instance_id=old.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=old.client_id,
        client_host=old.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        classic=ClassicMetadata(old.session_timeout_ms, old.protocols),
        epoch=generation_id,
        previous_epoch=generation_id,
        assigned={topic: dict.fromkeys(parts, generation_id) for topic, parts in target.items()},
    )


def _records(group: ConsumerGroup) -> Work[list[GroupRecord]]:
    group_id = group.group_id
    members = group.members.values()
    records = yield from each(lambda member: member_record(group_id, member), members)
    records.append(epoch_record(group_id, group.epoch, group.metadata_hash))
    records += yield from each(lambda row: target_record(group_id, *row), group.target.items())
    records.append(target_epoch_record(group_id, group.assignment_epoch, 0))
    records += yield from each(lambda member: current_assignment_record(group_id, member), members)
    return records


def _answer_parked(step: ConsumerStep, classic: ClassicGroup) -> None:
    """Answer members that wait in a rebalance, so that they join the consumer group."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.members.values():
        if member.awaiting_join is not None:
            response = JoinGroupResponse(member_id=member.member_id, error_code=again)
            step.completions.append((member.awaiting_join, response))
        if member.awaiting_sync is not None:
            step.completions.append((member.awaiting_sync, SyncGroupResponse(error_code=again)))


def may_downgrade(group: ConsumerGroup, leaving: list[Member], settings: GroupSettings) -> bool:
    """Whether only classic members remain without ``leaving``, and can form a classic group
    again.
    """
    left = {member.member_id for member in leaving}
    staying = [member for name, member in group.members.items() if name not in left]
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and settings.consumer_migration_policy in ("bidirectional", "downgrade")
        and len(staying) <= settings.max_size
    )


def downgrade(
    group: ConsumerGroup,
    leaving: list[Member],
    joining: Member | None,
    ctx: GroupContext,
    settings: GroupSettings,
    *,
    rebalance: bool,
    answer: Message | None,
    before: tuple[GroupRecord, ...] = (),
) -> Work[Result]:
    """Convert the group to a classic one. ``joining`` is a static member that replaces the last
    member of the consumer protocol. The records ``before`` have added it.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    renamed = {}
    if joining is not None and replaced is not None:
        renamed[replaced.member_id] = joining.member_id
    gone = {member.member_id for member in leaving} | renamed.keys()
    classic = ClassicGroup(group.group_id, ctx.now_ms)
    classic.generation_id = group.epoch
    staying = [member for name, member in group.members.items() if name not in gone]
    for member in [*staying, *([] if joining is None else [joining])]:
        classic.add(_classic_member(member))
        yield
    classic.state = STABLE
    classic.protocol_name = yield from classic.select_protocol()
    classic.subscribed_topics = yield from classic.compute_subscribed_topics()
    for restored in list(classic.members.values()):
        owner_id = restored.member_id
        if replaced is not None and owner_id in renamed.values():
            owner_id = replaced.member_id
        metadata = restored.metadata(classic.protocol_name)
        assignment = assignment_bytes(group.target_of(owner_id), ctx.topics, metadata)
        classic.replace(restored._replace(assignment=assignment))
        yield
    step = Step(classic, ctx, settings)
    step.records += [*before, *group.tombstones(renamed), (yield from metadata_record(classic))]
    for restored in classic.members.values():
        step.expect_heartbeat(restored)
        yield
    if rebalance:
        yield from step.prepare_rebalance()
    return step.result(answer)


def _classic_member(member: Member) -> ClassicMember:
    assert member.classic is not None, member
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=member.classic.protocols,
    )
