"""A member of a share group (KIP-932), and the records that store it. It makes no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.record import GroupRecord
from kstore.protocol.coordinator_records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    TopicPartitions,
)

__all__ = [
    "LEFT_EPOCH",
    "NOTHING",
    "STABLE",
    "Assigned",
    "Member",
    "current_record",
    "current_tombstone",
    "member_record",
    "member_tombstone",
    "target_tombstone",
    "with_assignment",
    "with_metadata",
]

Assigned = Mapping[UUID, frozenset[int]]
"""Topic id to partitions."""

NOTHING: Assigned = {}
LEFT_EPOCH = -1
STABLE = 0
"""The stored state of every member, since in a share group no member waits for another."""


class Member(NamedTuple):
    """One member: first its own fields, then what the coordinator assigned."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    """The previous epoch. The member may still use it if the response with the new one was lost."""
    assigned: Assigned = NOTHING


def member_record(group_id: str, member: Member) -> GroupRecord:
    """The record of a member's own fields."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def member_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The record that deletes a member."""
    return GroupRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def with_metadata(member: Member, value: ShareGroupMemberMetadataValue) -> Member:
    """The member with the fields of a record."""
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )


def current_record(group_id: str, member: Member) -> GroupRecord:
    """The record of a member's current assignment."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ],
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def current_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The record that deletes a member's current assignment."""
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, None)


def target_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The record that deletes a member's target assignment."""
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, None)


def with_assignment(member: Member, value: ShareGroupCurrentMemberAssignmentValue | None) -> Member:
    """The member with the assignment of a record. None: without one, since it is about to be
    deleted.
    """
    if value is None:
        return member._replace(epoch=LEFT_EPOCH, previous_epoch=LEFT_EPOCH, assigned=NOTHING)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned={
            topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions
        },
    )
