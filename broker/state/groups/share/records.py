"""The records of a share group as a whole (epoch, target assignment), and what each record of such
a group does to it on replay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar

from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.share.group import ShareGroup
from kstore.broker.state.groups.share.member import (
    Assigned,
    Member,
    with_assignment,
    with_metadata,
)
from kstore.broker.state.groups.share.states import known_of
from kstore.protocol.coordinator_records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
)

__all__ = [
    "epoch_record",
    "replay_assignment",
    "replay_epoch",
    "replay_member",
    "replay_states",
    "replay_target",
    "replay_target_epoch",
    "target_epoch_record",
    "target_record",
]


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """The record of a group's epoch and of what it knows of its topics."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(ShareGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Assigned) -> GroupRecord:
    """The record of what a member is to have."""
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> GroupRecord:
    """The record of the epoch that the target assignment is for."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return GroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


class _Key(Protocol):
    group_id: str


K = TypeVar("K", bound=_Key)
V = TypeVar("V")


def _of_a_group(
    replay: Callable[[ShareGroup, K, V | None], None],
) -> Callable[[ShardState, K, V | None, int, int], None]:
    """What a kind of records does to its group. A value makes a group that is not there; there is
    nothing to do for a tombstone of one.
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
    key: ShareGroupMetadataKey,
    value: ShareGroupMetadataValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Take over a group's epoch; without a value the group is gone."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is None:
        return
    if value is None:
        del shard.groups[key.group_id]
        return
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


@_of_a_group
def replay_member(
    group: ShareGroup,
    key: ShareGroupMemberMetadataKey,
    value: ShareGroupMemberMetadataValue | None,
) -> None:
    """Take over what a member said of itself; without a value it is gone."""
    if value is None:
        group.remove(key.member_id)
        return
    member = group.members.get(key.member_id) or Member(key.member_id)
    group.put(with_metadata(member, value))


@_of_a_group
def replay_target_epoch(
    group: ShareGroup,
    key: ShareGroupTargetAssignmentMetadataKey,
    value: ShareGroupTargetAssignmentMetadataValue | None,
) -> None:
    """Take over the epoch that the target assignment is for."""
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


@_of_a_group
def replay_target(
    group: ShareGroup,
    key: ShareGroupTargetAssignmentMemberKey,
    value: ShareGroupTargetAssignmentMemberValue | None,
) -> None:
    """Take over what a member is to have."""
    if value is None:
        group.target.pop(key.member_id, None)
        return
    group.target[key.member_id] = {
        topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
    }


@_of_a_group
def replay_assignment(
    group: ShareGroup,
    key: ShareGroupCurrentMemberAssignmentKey,
    value: ShareGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Take over what a member has now."""
    member = group.members.get(key.member_id)
    if member is None and value is not None:
        member = Member(key.member_id)
    if member is not None:
        group.put(with_assignment(member, value))


@_of_a_group
def replay_states(
    group: ShareGroup,
    key: ShareGroupStatePartitionMetadataKey,
    value: ShareGroupStatePartitionMetadataValue | None,
) -> None:
    """Take over what is known of the share partitions' state."""
    group.states = known_of(value)


def _group(shard: ShardState, group_id: str, *, create: bool) -> ShareGroup | None:
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        return group
    if not create:
        return None
    if group is not None:
        raise ValueError(f"group {group_id!r} is a {group.kind} group and has share records")
    created = ShareGroup(group_id)
    shard.groups[group_id] = created
    return created
