"""Describing, listing, deleting and expiring groups: what an administrator asks, and what time
does. No membership.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kstore.broker.state.classic_group import (
    DEAD,
    EMPTY,
    STABLE,
    ClassicGroup,
    metadata_tombstone,
)
from kstore.broker.state.group_result import GroupRecord
from kstore.broker.state.offsets import CommittedOffset, Offsets, commit_tombstone
from kstore.errors import ErrorCode
from kstore.protocol.group_admin import DescribedGroup, DescribedGroupMember, ListedGroup

__all__ = ["delete_error", "deletion_records", "describe_group", "expiry_records", "list_groups"]

FIRST_VERSION_WITH_NOT_FOUND = 6
CLASSIC_TYPE = "classic"


def describe_group(group: ClassicGroup | None, group_id: str, api_version: int) -> DescribedGroup:
    """State and members; an unknown group is Dead, and since version 6 an error too (KIP-1043)."""
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=DEAD)
        if api_version >= FIRST_VERSION_WITH_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
        return described
    stable = group.state == STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(
    groups: Collection[ClassicGroup], states: list[str], types: list[str]
) -> list[ListedGroup]:
    """The groups in any of the states and of any of the types; an empty filter lets all through."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.lower() for name in types}
    if wanted_types and CLASSIC_TYPE not in wanted_types:
        return []
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state,
            group_type=CLASSIC_TYPE,
        )
        for group in groups
        if not wanted_states or group.state.lower() in wanted_states
    ]


def delete_error(group: ClassicGroup | None) -> int:
    """Why the group can't be deleted, or NONE."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state == EMPTY else ErrorCode.NON_EMPTY_GROUP


def deletion_records(group: ClassicGroup, offsets: Offsets) -> list[GroupRecord]:
    """The tombstones of a group: of its offsets, then its own."""
    places = offsets.all_places(group.group_id)
    records = [commit_tombstone(group.group_id, topic, part) for topic, part in places]
    return [*records, metadata_tombstone(group.group_id)]


def expiry_records(
    groups: Mapping[str, ClassicGroup], offsets: Offsets, now_ms: int, retention_ms: int
) -> list[GroupRecord]:
    """Tombstones of what is past its retention: offsets (KIP-211), and empty groups that have none
    left.
    """
    records: list[GroupRecord] = []
    for group in groups.values():
        expired = _expired_offsets(group, offsets, now_ms, retention_ms)
        records += [commit_tombstone(group.group_id, topic, part) for topic, part in expired]
        nothing_left = len(expired) == len(offsets.all_places(group.group_id))
        if group.state == EMPTY and nothing_left and not group.pending_join:
            records.append(metadata_tombstone(group.group_id))
    return records


def _expired_offsets(
    group: ClassicGroup, offsets: Offsets, now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    since_empty = -1
    if group.protocol_type is not None:
        if group.state == EMPTY:
            since_empty = group.state_timestamp_ms
        elif group.state != STABLE or group.subscribed_topics is None:
            return []

    def retained_since(offset: CommittedOffset) -> int:
        return since_empty if since_empty != -1 else offset.commit_timestamp

    return [
        (topic, partition)
        for topic, partition in offsets.expired(
            group.group_id, now_ms, retention_ms, retained_since
        )
        if not group.is_subscribed_to(topic)
    ]
