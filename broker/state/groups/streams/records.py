"""Creates and replays the records of streams groups. It makes no decisions."""

from __future__ import annotations

from collections.abc import Mapping

from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.streams.group import MemberState, StreamsGroup, StreamsMember
from kstore.broker.state.groups.streams.tasks import (
    NO_ASSIGNED_TASKS,
    AssignedTasks,
    Tasks,
    by_subtopology,
    task_ids,
    with_epochs,
)
from kstore.broker.state.groups.streams.topology import Topology
from kstore.protocol.coordinator_records.streams import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from kstore.protocol.coordinator_records.streams import (
    StreamsGroupCurrentMemberAssignmentValueTaskIds as CurrentTaskIds,
)
from kstore.protocol.coordinator_records.streams import (
    StreamsGroupTargetAssignmentMemberValueTaskIds as TargetTaskIds,
)
from kstore.protocol.schema import Message

__all__ = [
    "current_record",
    "epoch_record",
    "member_record",
    "replay",
    "replay_into",
    "target_epoch_record",
    "target_record",
    "topology_record",
]

NO_EPOCH = -1


# ---- making ----


def epoch_record(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    configs: Mapping[str, str],
) -> GroupRecord:
    """A new group epoch, and what it was computed from."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            LastAssignmentConfig(key=key, value=text) for key, text in sorted(configs.items())
        ],
    )
    return GroupRecord(StreamsGroupMetadataKey(group_id=group_id), value)


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> GroupRecord:
    """The group's topology."""
    return GroupRecord(StreamsGroupTopologyKey(group_id=group_id), value)


def member_record(group_id: str, member: StreamsMember) -> GroupRecord:
    """A member's own fields."""
    endpoint = member.user_endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=text) for key, text in member.client_tags],
    )
    key = StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def target_record(group_id: str, member_id: str, tasks: Tasks) -> GroupRecord:
    """A member's target."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=by_subtopology(tasks.active, TargetTaskIds),
        standby_tasks=by_subtopology(tasks.standby, TargetTaskIds),
        warmup_tasks=by_subtopology(tasks.warmup, TargetTaskIds),
    )
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> GroupRecord:
    """The group epoch for which the target assignment was computed."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return GroupRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: StreamsMember) -> GroupRecord:
    """A member's tasks, and those that it is giving up."""
    assigned, pending = member.assigned, member.pending_revocation
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        active_tasks=by_subtopology(assigned.active, CurrentTaskIds, assigned.active),
        standby_tasks=by_subtopology(assigned.standby, CurrentTaskIds),
        warmup_tasks=by_subtopology(assigned.warmup, CurrentTaskIds),
        active_tasks_pending_revocation=by_subtopology(
            pending.active, CurrentTaskIds, pending.active
        ),
        standby_tasks_pending_revocation=by_subtopology(pending.standby, CurrentTaskIds),
        warmup_tasks_pending_revocation=by_subtopology(pending.warmup, CurrentTaskIds),
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


# ---- replaying ----


def replay(
    shard: ShardState, key: Message, value: Message | None, record_offset: int, producer_id: int
) -> None:
    """Apply a record of a streams group."""
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = shard.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        if value is None:
            return
        # The streams group replaces an empty group of another kind, or one with only offsets.
        group = StreamsGroup(group_id)
        shard.groups[group_id] = group
    if value is None and isinstance(key, StreamsGroupMetadataKey):
        del shard.groups[group_id]
    else:
        replay_into(group, GroupRecord(key, value))


def replay_into(group: StreamsGroup, record: GroupRecord) -> None:
    """Apply a record of this group, unless it deletes the group."""
    key, value = record.key, record.value
    if isinstance(key, StreamsGroupMetadataKey):
        if isinstance(value, StreamsGroupMetadataValue):
            _replay_epoch(group, value)
    elif isinstance(key, StreamsGroupTopologyKey):
        known = isinstance(value, StreamsGroupTopologyValue)
        group.topology = Topology(value) if known else None  # type: ignore[arg-type]
    elif isinstance(key, StreamsGroupMemberMetadataKey):
        assert value is None or isinstance(value, StreamsGroupMemberMetadataValue)
        _replay_member(group, key.member_id, value)
    elif isinstance(key, StreamsGroupTargetAssignmentMetadataKey):
        assert value is None or isinstance(value, StreamsGroupTargetAssignmentMetadataValue)
        group.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch
        group.assignment_timestamp = 0 if value is None else value.assignment_timestamp
    elif isinstance(key, StreamsGroupTargetAssignmentMemberKey):
        assert value is None or isinstance(value, StreamsGroupTargetAssignmentMemberValue)
        _replay_target(group, key.member_id, value)
    else:
        assert isinstance(key, StreamsGroupCurrentMemberAssignmentKey), key
        assert value is None or isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
        _replay_current(group, key.member_id, value)


def _replay_epoch(group: StreamsGroup, value: StreamsGroupMetadataValue) -> None:
    group.group_epoch = value.epoch
    group.metadata_hash = value.metadata_hash
    group.validated_topology_epoch = value.validated_topology_epoch
    configs = value.last_assignment_configs or []
    group.assignment_configs = {config.key: config.value for config in configs}


def _replay_member(
    group: StreamsGroup, member_id: str, value: StreamsGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group.remove(member_id)
        return
    endpoint = value.user_endpoint
    member = group.members.get(member_id) or StreamsMember(member_id)
    group.put(
        member._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            client_tags=tuple(sorted((tag.key, tag.value) for tag in value.client_tags)),
        )
    )


def _replay_target(
    group: StreamsGroup, member_id: str, value: StreamsGroupTargetAssignmentMemberValue | None
) -> None:
    if value is None:
        group.targets.pop(member_id, None)
    else:
        group.targets[member_id] = Tasks(
            task_ids(value.active_tasks),
            task_ids(value.standby_tasks),
            task_ids(value.warmup_tasks),
        )


def _replay_current(
    group: StreamsGroup, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None
) -> None:
    if value is None:
        member = group.members.get(member_id)
        if member is not None:
            gone = member._replace(
                member_epoch=NO_EPOCH,
                previous_member_epoch=NO_EPOCH,
                assigned=NO_ASSIGNED_TASKS,
                pending_revocation=NO_ASSIGNED_TASKS,
            )
            group.put(gone)
        return
    member = group.members.get(member_id) or StreamsMember(member_id)
    state = value.state if value.state in MemberState.ALL else MemberState.UNKNOWN
    group.put(
        member._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=state,
            assigned=AssignedTasks(
                with_epochs(value.active_tasks, value.member_epoch),
                task_ids(value.standby_tasks),
                task_ids(value.warmup_tasks),
            ),
            pending_revocation=AssignedTasks(
                with_epochs(value.active_tasks_pending_revocation, value.member_epoch),
                task_ids(value.standby_tasks_pending_revocation),
                task_ids(value.warmup_tasks_pending_revocation),
            ),
        )
    )
