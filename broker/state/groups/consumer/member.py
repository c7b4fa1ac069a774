"""A member of a consumer group (KIP-848), and the records that store it.

An assignment maps topic ids to partitions, and each partition to its assignment epoch: the member
epoch in which this member got it (KAFKA-19779). It makes no decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.record import GroupRecord
from kstore.protocol.coordinator_records.consumer import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

__all__ = [
    "LEFT_EPOCH",
    "NOTHING",
    "STABLE",
    "STATIC_LEFT_EPOCH",
    "UNASSIGNED_EPOCH",
    "UNRELEASED_PARTITIONS",
    "UNREVOKED_PARTITIONS",
    "Assigned",
    "ClassicMetadata",
    "Member",
    "current_assignment_record",
    "current_assignment_tombstone",
    "member_record",
    "member_tombstone",
    "with_assignment",
    "with_metadata",
]

Assigned = Mapping[UUID, Mapping[int, int]]
"""Topic id to partition to assignment epoch."""

NOTHING: Assigned = {}

STABLE = 0
"""The member has its target assignment."""
UNREVOKED_PARTITIONS = 1
"""It must give up partitions before it can enter the next epoch."""
UNRELEASED_PARTITIONS = 2
"""It has entered the next epoch, and waits for partitions that others have not given up yet."""
UNKNOWN_STATE = 127

LEFT_EPOCH = -1
STATIC_LEFT_EPOCH = -2
"""The epoch of a static member that has left temporarily. Its partitions are reserved for it."""
UNASSIGNED_EPOCH = 2_147_483_647
"""The assignment epoch of a partition that the member does not own. It is above all epochs."""


class ClassicMetadata(NamedTuple):
    """What a member of the classic protocol sent with JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Member(NamedTuple):
    """One member. The fields up to ``classic`` come from the client, the others from the
    coordinator.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    """None if it uses the consumer protocol."""
    epoch: int = 0
    previous_epoch: int = -1
    """The previous epoch. The member may still use it if the response with the new one was lost."""
    state: int = STABLE
    assigned: Assigned = NOTHING
    revoking: Assigned = NOTHING
    """Partitions that it still owns and must give up."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has reached the target assignment of an epoch."""
        return self.state == STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int:
        """The assignment epoch of a partition that it owns or has not given up yet."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        if epoch is None:
            epoch = self.revoking.get(topic_id, {}).get(partition, UNASSIGNED_EPOCH)
        return epoch

    def has(self, topic_id: UUID, partition: int) -> bool:
        """Whether it owns a partition, or has not given it up yet."""
        return self.assignment_epoch(topic_id, partition) != UNASSIGNED_EPOCH

    def moved_to(self, epoch: int, state: int, assigned: Assigned, revoking: Assigned) -> Member:
        """The member with another assignment, in ``epoch``."""
        return self._replace(
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            revoking=revoking,
        )


def member_record(group_id: str, member: Member) -> GroupRecord:
    """The record of a member's own fields."""
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def member_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The record that deletes a member."""
    return GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def with_metadata(member: Member, value: ConsumerGroupMemberMetadataValue) -> Member:
    """The member with the fields of a record."""
    classic = None
    if value.classic_member_metadata is not None:
        stored = value.classic_member_metadata
        classic = ClassicMetadata(
            stored.session_timeout_ms,
            tuple((item.name, bytes(item.metadata)) for item in stored.supported_protocols),
        )
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=classic,
    )


def current_assignment_record(group_id: str, member: Member) -> GroupRecord:
    """The record of a member's current assignment."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_stored(member.assigned),
        partitions_pending_revocation=_stored(member.revoking),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def current_assignment_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The record that deletes a member's current assignment."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, None)


def with_assignment(
    member: Member, value: ConsumerGroupCurrentMemberAssignmentValue | None
) -> Member:
    """The member with the assignment of a record. None: without one, since it is about to be
    deleted.
    """
    if value is None:
        return member._replace(
            epoch=LEFT_EPOCH, previous_epoch=LEFT_EPOCH, assigned=NOTHING, revoking=NOTHING
        )
    known = (STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=value.state if value.state in known else UNKNOWN_STATE,
        assigned=_restored(value.assigned_partitions, value.member_epoch),
        revoking=_restored(value.partitions_pending_revocation, value.member_epoch),
    )


def _stored(assigned: Assigned) -> list[TopicPartitions]:
    stored = []
    for topic_id, epochs in assigned.items():
        partitions = sorted(epochs)
        stored.append(
            TopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=[epochs[partition] for partition in partitions],
            )
        )
    return stored


def _restored(stored: list[TopicPartitions], member_epoch: int) -> Assigned:
    """The assignment of a record. Kafka brokers before 4.3 stored no assignment epochs; then the
    member's epoch is used.
    """
    assigned = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned
