"""The record that persists a classic group: its generation, its members and their assignments. This
file writes and replays it.
"""

from __future__ import annotations

from kstore.broker.state.groups.classic.group import EMPTY, STABLE, ClassicGroup, ClassicMember
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.work import Work, each, whole
from kstore.protocol.coordinator_records.classic import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

__all__ = ["metadata_record", "replay_metadata"]

GROUP_METADATA_VERSION = 3


def metadata_record(group: ClassicGroup) -> Work[GroupRecord]:
    """The record that persists the group's generation and its members' assignments."""
    members = yield from each(lambda member: _stored(group, member), group.members.values())
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    return GroupRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def _stored(group: ClassicGroup, member: ClassicMember) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=member.assignment,
    )


def restore_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group in a metadata record: Stable with its members, or Empty."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation_id = value.generation
    for stored in value.members:
        rebalance_timeout_ms = stored.rebalance_timeout
        group.add(
            ClassicMember(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=(
                    stored.session_timeout if rebalance_timeout_ms == -1 else rebalance_timeout_ms
                ),
                session_timeout_ms=stored.session_timeout,
                protocol_type=value.protocol_type,
                protocols=((value.protocol or "", bytes(stored.subscription)),),
                assignment=bytes(stored.assignment),
            )
        )
    group.state = STABLE if group.members else EMPTY
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    group.subscribed_topics = whole(group.compute_subscribed_topics())
    return group


def replay_metadata(
    shard: ShardState,
    key: GroupMetadataKey,
    value: GroupMetadataValue | None,
    record_offset: int,
    producer_id: int,
) -> None:
    """Apply a record of a classic group's state."""
    if value is not None:
        shard.groups[key.group] = restore_group(key.group, value)
    elif isinstance(shard.groups.get(key.group), ClassicGroup):
        del shard.groups[key.group]
