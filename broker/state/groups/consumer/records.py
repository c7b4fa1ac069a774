"""The records of a consumer group as a whole (epoch, target assignment, regular expressions), and
the replay of each record of such a group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar

from kstore.broker.state.groups.classic.group import ClassicGroup
from kstore.broker.state.groups.consumer.group import ConsumerGroup, Resolved, Target
from kstore.broker.state.groups.consumer.member import Member, with_assignment, with_metadata
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.record import GroupRecord
from kstore.protocol.coordinator_records.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)

__all__ = [
    "epoch_record",
    "regex_record",
    "replay_assignment",
    "replay_epoch",
    "replay_member",
    "replay_partition_metadata",
    "replay_regex",
    "replay_target",
    "replay_target_epoch",
    "target_epoch_record",
    "target_record",
]


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """The record of a group's epoch and metadata hash."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    """The record of a member's target assignment."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> GroupRecord:
    """The record of the target assignment's epoch."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def regex_record(group_id: str, regex: str, resolved: Resolved) -> GroupRecord:
    """The record of a resolved regular expression."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return GroupRecord(key, value)


class _Key(Protocol):
    group_id: str


K = TypeVar("K", bound=_Key)
V = TypeVar("V")


def _of_a_group(
    replay: Callable[[ConsumerGroup, K, V | None], None],
) -> Callable[[ShardState, K, V | None, int, int], None]:
    """Wrap the replay of a kind of record. A value creates a missing group; a tombstone for a
    missing group does nothing.
    """

    @wraps(replay)
    def replay_record(
        shard: ShardState, key: K, value: V | None, record_offset: int, producer_id: int
    ) -> None:
        group = _group(shard, key.group_id, create=value is not None)
        if group is not None:
            replay(group, key, value)

    return replay_record


def replay_epoch(
    shard: ShardState,
    key: ConsumerGroupMetadataKey,
    value: ConsumerGroupMetadataValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Apply a group's epoch. A tombstone deletes the group."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is None:
        return
    if value is None:
        del shard.groups[key.group_id]
        return
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


@_of_a_group
def replay_partition_metadata(
    group: ConsumerGroup,
    key: ConsumerGroupPartitionMetadataKey,
    value: ConsumerGroupPartitionMetadataValue | None,
) -> None:
    """Note that an older broker's record of the topics exists."""
    group.has_partition_metadata = value is not None


@_of_a_group
def replay_member(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    """Apply a member's own fields. A tombstone deletes the member."""
    if value is None:
        group.remove(key.member_id)
        return
    member = group.members.get(key.member_id) or Member(key.member_id)
    group.put(with_metadata(member, value))


@_of_a_group
def replay_target_epoch(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    """Apply the target assignment's epoch."""
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


@_of_a_group
def replay_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    """Apply a member's target assignment."""
    if value is None:
        group.target.pop(key.member_id, None)
        return
    group.target[key.member_id] = {
        topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
    }


@_of_a_group
def replay_assignment(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Apply a member's current assignment."""
    member = group.members.get(key.member_id)
    if member is None and value is not None:
        member = Member(key.member_id)
    if member is not None:
        group.put(with_assignment(member, value))


@_of_a_group
def replay_regex(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    """Apply the topics that a regular expression matched."""
    if value is None:
        group.regexes.pop(key.regular_expression, None)
        return
    group.regexes[key.regular_expression] = Resolved(
        frozenset(value.topics), value.version, value.timestamp
    )


def _group(shard: ShardState, group_id: str, *, create: bool) -> ConsumerGroup | None:
    """The consumer group. A simple group, which only has offsets, becomes one."""
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if not create:
        return None
    if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
        raise ValueError(f"group {group_id!r} is a {group.kind} group and has consumer records")
    created = ConsumerGroup(group_id)
    shard.groups[group_id] = created
    return created
