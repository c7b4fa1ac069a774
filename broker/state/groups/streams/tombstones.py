"""The records that remove streams groups, and members of them."""

from __future__ import annotations

from collections.abc import Iterable

from kstore.broker.state.groups.record import GroupRecord
from kstore.protocol.coordinator_records.streams import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)

__all__ = ["group_tombstones", "member_tombstones"]


def member_tombstones(group_id: str, member_ids: Iterable[str]) -> list[GroupRecord]:
    """The records that remove members."""
    ids = list(member_ids)
    kinds = (
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupMemberMetadataKey,
    )
    return [
        GroupRecord(key(group_id=group_id, member_id=member_id), None)
        for key in kinds
        for member_id in ids
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[GroupRecord]:
    """The records that remove a group with these members."""
    return [
        *member_tombstones(group_id, member_ids),
        GroupRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        GroupRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        GroupRecord(StreamsGroupTopologyKey(group_id=group_id), None),
    ]
