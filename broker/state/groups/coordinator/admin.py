"""Describing, listing, deleting and expiring groups: what an administrator asks, and what time
does. No membership.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kstore.broker.state.groups.classic.group import DEAD, STABLE, ClassicGroup
from kstore.broker.state.groups.contract import Group, ShardState
from kstore.broker.state.groups.offsets import Offsets, commit_tombstone
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.errors import ErrorCode
from kstore.protocol.groups.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
)

__all__ = ["delete_groups", "describe_group", "expiry_records", "list_groups"]

FIRST_VERSION_WITH_NOT_FOUND = 6


def describe_group(group: Group | None, group_id: str, api_version: int) -> DescribedGroup:
    """State and members; an unknown group, or one of another kind, is Dead, and since
    version 6 an error too (KIP-1043).
    """
    if not isinstance(group, ClassicGroup):
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
    groups: Collection[Group], states: list[str], types: list[str]
) -> list[ListedGroup]:
    """The groups in any of the states and of any of the types; an empty filter lets all through."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.lower() for name in types}
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state,
            group_type=group.kind,
        )
        for group in groups
        if (not wanted_types or group.kind in wanted_types)
        and (not wanted_states or group.state.lower() in wanted_states)
    ]


def delete_groups(
    shard: ShardState, group: Group | None, request: DeleteGroupsRequest, ctx: GroupContext
) -> Result:
    """Delete one group (the request names no other), with its offsets."""
    error_code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()
    result = DeletableGroupResult(group_id=request.groups_names[0], error_code=error_code)
    records: list[GroupRecord] = []
    if group is not None and error_code == ErrorCode.NONE:
        places = shard.offsets.all_places(group.group_id)
        records = [commit_tombstone(group.group_id, topic, part) for topic, part in places]
        records += group.tombstones()
    return Result(DeleteGroupsResponse(results=[result]), tuple(records))


def expiry_records(
    groups: Mapping[str, Group], offsets: Offsets, now_ms: int, retention_ms: int
) -> list[GroupRecord]:
    """Tombstones of what is past its retention: offsets (KIP-211), and empty groups that have none
    left.
    """
    records: list[GroupRecord] = []
    for group in groups.values():
        expired = list(_expired(group, offsets, now_ms, retention_ms))
        records += [commit_tombstone(group.group_id, topic, part) for topic, part in expired]
        nothing_left = len(expired) == len(offsets.all_places(group.group_id))
        if group.is_unused and nothing_left:
            records += group.tombstones()
    return records


def _expired(
    group: Group, offsets: Offsets, now_ms: int, retention_ms: int
) -> Iterator[tuple[str, int]]:
    """The topic partitions whose retention is over, the offset's own or else the group's, and that
    no member may be consuming.
    """
    if group.retained_since(0) is None:
        return
    for topic, partition, offset in offsets.settled(group.group_id):
        if offset.expire_timestamp != -1:
            over = now_ms >= offset.expire_timestamp
        else:
            since_ms = group.retained_since(offset.commit_timestamp) or 0
            over = now_ms - since_ms >= retention_ms
        if over and not group.is_subscribed_to(topic):
            yield topic, partition
