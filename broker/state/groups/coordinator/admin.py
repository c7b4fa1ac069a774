"""Describes, lists, deletes and expires groups. It does not handle membership."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kstore.broker.state.groups.classic.group import DEAD, STABLE, ClassicGroup, ClassicMember
from kstore.broker.state.groups.contract import Group, ShardState
from kstore.broker.state.groups.offsets import Offsets, commit_tombstone
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.work import Work, each
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
MOST_LOOKED_AT = 512
"""The number of offsets and groups that one part of the expiry checks."""


def describe_group(group: Group | None, group_id: str, api_version: int) -> Work[DescribedGroup]:
    """State and members. An unknown group, or one of another kind, is Dead. From version 6 on it
    also gets an error (KIP-1043).
    """
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=DEAD)
        if api_version >= FIRST_VERSION_WITH_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
        return described
    stable = group.state == STABLE
    name = group.protocol_name if stable else None

    def described_member(member: ClassicMember) -> DescribedGroupMember:
        return DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(name) if stable else b"",
            member_assignment=member.assignment,
        )

    members = yield from each(described_member, group.members.values())
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=members,
    )


def list_groups(
    groups: Collection[Group], states: list[str], types: list[str]
) -> Work[list[ListedGroup]]:
    """The groups in one of the states and of one of the types. An empty filter matches all."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.lower() for name in types}

    def listed(group: Group) -> list[ListedGroup]:
        state, kind = group.state, group.kind
        if (wanted_types and kind not in wanted_types) or (
            wanted_states and state.lower() not in wanted_states
        ):
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=state,
                group_type=kind,
            )
        ]

    return [row for rows in (yield from each(listed, groups)) for row in rows]


def delete_groups(
    shard: ShardState, group: Group | None, request: DeleteGroupsRequest, ctx: GroupContext
) -> Work[Result]:
    """Delete a group with its offsets. The request has only one group."""
    error_code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()
    result = DeletableGroupResult(group_id=request.groups_names[0], error_code=error_code)
    records: list[GroupRecord] = []
    if group is not None and error_code == ErrorCode.NONE:
        group_id = group.group_id
        partitions = yield from shard.offsets.all_partitions(group_id)
        records = yield from each(lambda place: commit_tombstone(group_id, *place), partitions)
        records += group.tombstones()
    return Result(DeleteGroupsResponse(results=[result]), tuple(records))


def expiry_records(
    groups: Mapping[str, Group], offsets: Offsets, now_ms: int, retention_ms: int
) -> Iterator[list[GroupRecord]]:
    """Tombstones of expired offsets (KIP-211), and of empty groups without offsets, in parts. Each
    part depends on the state when it is requested.
    """
    records: list[GroupRecord] = []
    looked_at = 0
    for group_id in list(groups):
        for topic in list(offsets.topics(group_id)):
            for partition in list(offsets.topics(group_id).get(topic, ())):
                if _is_over(groups.get(group_id), offsets, topic, partition, now_ms, retention_ms):
                    records.append(commit_tombstone(group_id, topic, partition))
                looked_at += 1
                if looked_at % MOST_LOOKED_AT == 0:
                    yield records
                    records = []
        looked_at += 1
        if records or looked_at % MOST_LOOKED_AT == 0:
            yield records
            records = []
        group = groups.get(group_id)
        if group is not None and group.is_unused and not offsets.has_any(group_id):
            yield group.tombstones()


def _is_over(
    group: Group | None,
    offsets: Offsets,
    topic: str,
    partition: int,
    now_ms: int,
    retention_ms: int,
) -> bool:
    """Whether an offset's own retention, or else its group's, has ended, and no member may be
    consuming it.
    """
    if group is None:
        return False
    offset = offsets.get(group.group_id, topic, partition)
    if offset is None or offsets.is_pending(group.group_id, topic, partition):
        return False
    since_ms = group.retained_since(offset.commit_timestamp)
    if since_ms is None:
        return False
    if offset.expire_timestamp != -1:
        over = now_ms >= offset.expire_timestamp
    else:
        over = now_ms - since_ms >= retention_ms
    return over and not group.is_subscribed_to(topic)
