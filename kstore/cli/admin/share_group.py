"""``kstore group`` for share groups: their start offsets have their own requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kstore.errors import GroupIdNotFoundError, KafkaError, UnsupportedVersionError
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import GroupDescription, Results

__all__ = ["alter_offsets", "delete_offsets", "is_share", "offsets", "start_offsets"]


def is_share(admin: AdminClient, group: str) -> bool:
    """Whether the group exists and is a share group."""
    try:
        return group in admin.describe_share_groups([group], raise_errors=False)
    except (GroupIdNotFoundError, UnsupportedVersionError):
        return False


def offsets(admin: AdminClient, group: GroupDescription) -> list[dict[str, Any]]:
    """A row for each partition: the group's start offset, the lag, and the members that read it."""
    found = admin.list_share_group_offsets(group.group_id, raise_errors=False)
    owners: dict[TopicPartition, list[str]] = {}
    for member in group.members:
        for tp in member.assignment:
            owners.setdefault(tp, []).append(member.client_id)
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "start_offset": found[tp].start_offset if tp in found else None,
            "lag": found[tp].lag if tp in found else None,
            "members": len(owners.get(tp, ())),
            "client_ids": sorted(set(owners.get(tp, ()))),
        }
        for tp in sorted({*found, *owners})
    ]


def start_offsets(admin: AdminClient, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """The start offsets, in the form of committed offsets."""
    rows = admin.list_share_group_offsets(group)
    return {tp: OffsetAndMetadata(row.start_offset) for tp, row in rows.items()}


def alter_offsets(
    admin: AdminClient, group: str, wanted: dict[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, KafkaError]:
    """Set the start offsets; returns the errors."""
    return admin.alter_share_group_offsets(group, wanted, raise_errors=False).errors


def delete_offsets(
    admin: AdminClient, group: str, topics: list[tuple[str, list[int] | None]]
) -> Results[str, None]:
    """Delete the start offsets of whole topics."""
    for name, indexes in topics:
        if indexes is not None:
            raise typer.BadParameter(
                f"{group} is a share group, whose offsets are deleted by whole topics: use {name}"
                " without partitions"
            )
    return admin.delete_share_group_offsets(group, [name for name, _ in topics], raise_errors=False)
