"""Descriptions of groups: classic groups, consumer groups (KIP-848), streams groups and share
groups. This module has only the types, and reads them from responses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kstore.clients.admin.acls import AclOperation, operations_of
from kstore.errors import ProtocolError
from kstore.protocol.groups import consumer_groups, group_admin, streams_groups
from kstore.protocol.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kstore.protocol.shares import describe as share_groups
from kstore.types import TopicPartition

__all__ = [
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "Subtopology",
    "TaskId",
    "classic_group",
    "consumer_group",
    "share_group",
    "streams_group",
]


class TaskId(NamedTuple):
    """A task of a streams group: one partition of a subtopology's source topics."""

    subtopology: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group's id, type (classic, consumer, share, streams; "" if unknown), state and protocol."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. Fields that its type of group does not have are None or empty.
    `assignment` is what the member has now, `target_assignment` what it should have (KIP-848).
    Members of streams groups have tasks instead.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    rack: str | None = None
    epoch: int | None = None
    topics: tuple[str, ...] = ()
    topic_regex: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] = ()
    active_tasks: tuple[TaskId, ...] = ()
    standby_tasks: tuple[TaskId, ...] = ()
    warmup_tasks: tuple[TaskId, ...] = ()
    process_id: str | None = None


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the topology of a Kafka Streams application, with its topics."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    changelog_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its type (classic, consumer, share, streams), state, members, and coordinator's
    broker id. In classic groups `epoch` and `assignment_epoch` are None, and `assignor` is the
    protocol on which the members have agreed.
    """

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    topology: tuple[Subtopology, ...] = ()
    authorized_operations: frozenset[AclOperation] | None = None


def classic_group(row: group_admin.DescribedGroup, coordinator: int) -> GroupDescription:
    """Read a row of DescribeGroups."""
    members = tuple(_classic_member(row.protocol_type, member) for member in row.members)
    return GroupDescription(
        row.group_id,
        "classic",
        row.group_state,
        row.protocol_type,
        row.protocol_data,
        coordinator,
        members,
        authorized_operations=operations_of(row.authorized_operations),
    )


def _classic_member(protocol_type: str, row: group_admin.DescribedGroupMember) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    if protocol_type == "consumer":
        # Members of other protocols (connect, sr, ...) have bytes that only they can read.
        topics = _subscription(row.member_metadata)
        assigned = _assignment(row.member_assignment)
    return MemberDescription(
        row.member_id,
        row.client_id,
        row.client_host,
        row.group_instance_id,
        topics=topics,
        assignment=assigned,
    )


def _version(data: bytes, newest: int) -> int:
    """The version of a member's bytes; a newer one is read as the newest known one."""
    return min(int.from_bytes(data[:2], "big"), newest)


def _subscription(data: bytes) -> tuple[str, ...]:
    try:
        version = _version(data, ConsumerProtocolSubscription.MAX_VERSION)
        message, _ = ConsumerProtocolSubscription.decode_prefix(data, version, 2)
    except ProtocolError:
        return ()
    return tuple(message.topics)


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    try:
        version = _version(data, ConsumerProtocolAssignment.MAX_VERSION)
        message, _ = ConsumerProtocolAssignment.decode_prefix(data, version, 2)
    except ProtocolError:
        return ()
    return _sorted((row.topic, row.partitions) for row in message.assigned_partitions)


def consumer_group(row: consumer_groups.DescribedGroup, coordinator: int) -> GroupDescription:
    """Read a row of ConsumerGroupDescribe."""
    members = tuple(
        MemberDescription(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            member.rack_id,
            member.member_epoch,
            tuple(member.subscribed_topic_names),
            member.subscribed_topic_regex or None,
            _named(member.assignment),
            _named(member.target_assignment),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id,
        "consumer",
        row.group_state,
        "consumer",
        row.assignor_name,
        coordinator,
        members,
        row.group_epoch,
        row.assignment_epoch,
        authorized_operations=operations_of(row.authorized_operations),
    )


def _named(
    assignment: consumer_groups.ConsumerGroupDescribeResponseAssignment,
) -> tuple[TopicPartition, ...]:
    return _sorted((row.topic_name, row.partitions) for row in assignment.topic_partitions)


def _sorted(rows: Iterable[tuple[str, list[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic, each) for topic, parts in rows for each in parts))


def share_group(row: share_groups.DescribedGroup, coordinator: int) -> GroupDescription:
    """Read a row of ShareGroupDescribe. Several members may have one partition."""
    members = tuple(
        MemberDescription(
            member.member_id,
            member.client_id,
            member.client_host,
            rack=member.rack_id,
            epoch=member.member_epoch,
            topics=tuple(member.subscribed_topic_names),
            assignment=_sorted(
                (each.topic_name, each.partitions) for each in member.assignment.topic_partitions
            ),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id,
        "share",
        row.group_state,
        "share",
        row.assignor_name,
        coordinator,
        members,
        row.group_epoch,
        row.assignment_epoch,
        authorized_operations=operations_of(row.authorized_operations),
    )


def streams_group(row: streams_groups.DescribedGroup, coordinator: int) -> GroupDescription:
    """Read a row of StreamsGroupDescribe."""
    parts = (row.topology.subtopologies or []) if row.topology else []
    return GroupDescription(
        row.group_id,
        "streams",
        row.group_state,
        "streams",
        "",
        coordinator,
        tuple(_streams_member(member) for member in row.members),
        row.group_epoch,
        row.assignment_epoch,
        tuple(
            Subtopology(
                part.subtopology_id,
                tuple(part.source_topics),
                tuple(topic.name for topic in part.repartition_source_topics),
                tuple(part.repartition_sink_topics),
                tuple(topic.name for topic in part.state_changelog_topics),
            )
            for part in parts
        ),
        operations_of(row.authorized_operations),
    )


def _streams_member(row: streams_groups.Member) -> MemberDescription:
    return MemberDescription(
        row.member_id,
        row.client_id,
        row.client_host,
        row.instance_id,
        row.rack_id,
        row.member_epoch,
        active_tasks=_tasks(row.assignment.active_tasks),
        standby_tasks=_tasks(row.assignment.standby_tasks),
        warmup_tasks=_tasks(row.assignment.warmup_tasks),
        process_id=row.process_id,
    )


def _tasks(
    rows: Iterable[streams_groups.StreamsGroupDescribeResponseTaskIds],
) -> tuple[TaskId, ...]:
    return tuple(
        sorted(TaskId(row.subtopology_id, each) for row in rows for each in row.partitions)
    )
