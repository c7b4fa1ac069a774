"""The records of a consumer group as a whole (epoch, target assignment, regular expressions), and
what each record of such a group does to it on replay.
"""

from __future__ import annotations

from kstore.broker.state.classic_group import ClassicGroup
from kstore.broker.state.consumer_group import ConsumerGroup, Resolved, Target
from kstore.broker.state.consumer_member import Member, with_assignment, with_metadata
from kstore.broker.state.group_contract import ShardState
from kstore.broker.state.group_result import GroupRecord
from kstore.protocol.log_records_consumer import (
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
    """The record of a group's epoch and of what it knows of its topics."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    """The record of what a member is to own."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> GroupRecord:
    """The record of the epoch that the target assignment is for."""
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


def replay_epoch(
    shard: ShardState,
    key: ConsumerGroupMetadataKey,
    value: ConsumerGroupMetadataValue | None,
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


def replay_partition_metadata(
    shard: ShardState,
    key: ConsumerGroupPartitionMetadataKey,
    value: ConsumerGroupPartitionMetadataValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Note that an older broker's record of the topics exists."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is not None:
        group.has_partition_metadata = value is not None


def replay_member(
    shard: ShardState,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Take over what a member said of itself; without a value it is gone."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is None:
        return
    if value is None:
        group.remove(key.member_id)
        return
    member = group.members.get(key.member_id) or Member(key.member_id)
    group.put(with_metadata(member, value))


def replay_target_epoch(
    shard: ShardState,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Take over the epoch that the target assignment is for."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is None:
        return
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def replay_target(
    shard: ShardState,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Take over what a member is to own."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is None:
        return
    if value is None:
        group.target.pop(key.member_id, None)
        return
    group.target[key.member_id] = {
        topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
    }


def replay_assignment(
    shard: ShardState,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Take over what a member owns now."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is None:
        return
    member = group.members.get(key.member_id)
    if member is None and value is not None:
        member = Member(key.member_id)
    if member is not None:
        group.put(with_assignment(member, value))


def replay_regex(
    shard: ShardState,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Take over the topics that a regular expression matched."""
    group = _group(shard, key.group_id, create=value is not None)
    if group is None:
        return
    if value is None:
        group.regexes.pop(key.regular_expression, None)
        return
    group.regexes[key.regular_expression] = Resolved(
        frozenset(value.topics), value.version, value.timestamp
    )


def _group(shard: ShardState, group_id: str, *, create: bool) -> ConsumerGroup | None:
    """The consumer group; a simple group, which only holds offsets, becomes one."""
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
