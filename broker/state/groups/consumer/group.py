"""A consumer group (KIP-848): epochs, members, target assignment, resolved regular expressions. It
makes no decisions. Its records define it.

It has two indexes over the members, because each join in a large group needs them: the owner of
each partition, and the number of members by subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.consumer.member import (
    Member,
    current_assignment_tombstone,
    member_tombstone,
)
from kstore.broker.state.groups.consumer.subscriptions import Subscriptions
from kstore.broker.state.groups.contract import CommitClaim
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.timers import TimerChange
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.consumer import (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

__all__ = [
    "CONSUMER_KIND",
    "ConsumerGroup",
    "Resolved",
    "Target",
    "partition_metadata_tombstone",
    "regex_tombstone",
    "target_tombstone",
]

CONSUMER_KIND = "consumer"
PROTOCOL_TYPE = "consumer"
FIRST_EPOCH = 1

Target = Mapping[UUID, frozenset[int]]
"""Topic id to partitions: a member's target."""


class Resolved(NamedTuple):
    """The topics that a regular expression matched, the metadata version, and the time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """The group. Invariants: assignment epoch of a partition <= member epoch <= target assignment
    epoch <= group epoch, for every member that has not left; a partition has one owner.
    """

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owned",
        "regexes",
        "regexes_image_version",
        "seen_image_version",
        "static_members",
        "subscriptions",
        "target",
    )
    kind = CONSUMER_KIND
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.subscriptions = Subscriptions()
        """The subscriptions of all members."""
        self.target: dict[str, Target] = {}
        self.regexes: dict[str, Resolved] = {}
        self.has_partition_metadata = False
        """Whether a Kafka broker before 4.1 has left a record of the topics, which must be
        deleted.
        """
        self.owned: dict[tuple[UUID, int], int] = {}
        """Every partition that a member owns or has not given up yet, with the member's epoch."""
        self.seen_image_version = -1
        """The version of the metadata for which `metadata_hash` was compared last. Soft state."""
        self.regexes_image_version = -1
        """The version of the metadata for which the regular expressions were resolved last. Soft
        state.
        """

    # ---- the contract of all groups ----

    @property
    def state(self) -> str:
        """The state's name in ListGroups and ConsumerGroupDescribe."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reconciled = (m.is_reconciled_to(self.assignment_epoch) for m in self.members.values())
        return "Stable" if all(reconciled) else "Reconciling"

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether it can be deleted as soon as it has no offsets left."""
        return not self.members

    def commit_error(self, claim: CommitClaim) -> int:
        """Whether the member may commit at all: it is a member, and its epoch is not larger than
        the current one.
        """
        if claim.is_let_in(bool(self.members)):
            return ErrorCode.NONE
        member = self.members.get(claim.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not claim.knows_member_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if claim.epoch <= member.epoch else _stale(member, claim)

    def partition_commit_error(
        self, claim: CommitClaim, topic: str, topic_id: UUID, partition: int
    ) -> int:
        """KAFKA-19779: a commit in an earlier epoch is fenced if it may be from before the
        partition was assigned to this member, or after it was revoked. In the member's current
        epoch any partition is allowed, unless the claim requires the assignment.
        """
        member = self.members.get(claim.member_id)
        if member is None:  # a commit without a member, which commit_error has allowed
            return ErrorCode.NONE
        if claim.epoch == member.epoch and not claim.needs_assignment:
            return ErrorCode.NONE
        if member.assignment_epoch(topic_id, partition) <= claim.epoch <= member.epoch:
            return ErrorCode.NONE
        return _stale(member, claim)

    def owns(self, member_id: str, topic: str, topic_id: UUID, partition: int) -> bool:
        """Whether the member owns the partition, or has not given it up yet."""
        member = self.members.get(member_id)
        return member is not None and member.has(topic_id, partition)

    def commit_timers(self, claim: CommitClaim) -> tuple[TimerChange, ...]:
        """Empty: only heartbeats extend a session."""
        return ()

    def fetch_error(self, member_id: str | None, member_epoch: int) -> int:
        """Members may read offsets in their epoch. A client that names no member may read, too."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        if member_id is None:  # an epoch without a member: Kafka fails here
            return ErrorCode.UNKNOWN_SERVER_ERROR
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return ErrorCode.NONE
        fenced = ErrorCode.STALE_MEMBER_EPOCH
        return fenced if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member names the topic, or a member's regular expression has matched it."""
        return self.subscriptions.names(topic) or any(
            topic in resolved.topics for resolved in self.regexes.values()
        )

    def retained_since(self, commit_timestamp: int) -> int | None:
        """Offsets of topics that no member consumes expire by the time of their commit."""
        return commit_timestamp

    def delete_error(self) -> int:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def delete_offsets_error(self) -> int:
        """Always NONE: subscriptions are known, so the result depends on the topic."""
        return ErrorCode.NONE

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[GroupRecord]:
        """The records that delete the group. ``renamed`` has new member ids that earlier records of
        the batch have set.
        """
        group_id = self.group_id
        ids = [(renamed or {}).get(member_id, member_id) for member_id in self.members]
        records = [current_assignment_tombstone(group_id, member_id) for member_id in ids]
        records += [target_tombstone(group_id, member_id) for member_id in ids]
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
        records.append(GroupRecord(key, None))
        records += [member_tombstone(group_id, member_id) for member_id in ids]
        records += [regex_tombstone(group_id, regex) for regex in self.regexes]
        records.append(partition_metadata_tombstone(group_id))
        records.append(GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
        return records

    # ---- derived from members ----

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        """Whether a member owns a partition, or has not given it up yet."""
        return (topic_id, partition) in self.owned

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member of an instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str | None) -> Target:
        """A member's target."""
        return self.target.get(member_id or "", {})

    def with_member(self, old: Member, new: Member) -> list[Member]:
        """The members if ``new`` replaced ``old``, which may not be a member yet."""
        others = [
            member
            for member in self.members.values()
            if member.member_id not in (old.member_id, new.member_id)
            and (new.instance_id is None or member.instance_id != new.instance_id)
        ]
        return [*others, new]

    def subscriptions_with(self, old: Member, new: Member) -> Subscriptions:
        """The subscriptions if ``new`` replaced ``old``, as in `with_member`."""
        ids = {old.member_id, new.member_id}
        if new.instance_id in self.static_members:
            ids.add(self.static_members[new.instance_id])
        leaving = [self.members[member_id] for member_id in ids if member_id in self.members]
        return self.subscriptions.after(leaving, [new])

    def subscribed_topics(self, subscriptions: Subscriptions) -> set[str]:
        """The topics of subscriptions, by name or by resolved regular expression."""
        topics = subscriptions.named
        for regex in subscriptions.regexes:
            if regex in self.regexes:
                topics |= self.regexes[regex].topics
        return topics

    def topics_of(self, member: Member) -> frozenset[str]:
        """The topics of one member. A regular expression that is not resolved yet matches
        nothing.
        """
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    # ---- replay ----

    def put(self, member: Member) -> None:
        """Insert or replace a member, and update the owners."""
        known = self.members.get(member.member_id)
        self._disown(known)
        if known is not None:
            self.subscriptions.remove(known)
        self.subscriptions.add(member)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for part in (member.assigned, member.revoking):
            for topic_id, partitions in part.items():
                for partition in partitions:
                    self.owned[topic_id, partition] = member.epoch

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._disown(member)
        self.subscriptions.remove(member)
        if (
            member.instance_id is not None
            and self.static_members.get(member.instance_id) == member_id
        ):
            del self.static_members[member.instance_id]

    def _disown(self, member: Member | None) -> None:
        """Remove the member's ownership, except of partitions that another member owns now."""
        if member is None:
            return
        for part in (member.assigned, member.revoking):
            for topic_id, partitions in part.items():
                for partition in partitions:
                    if self.owned.get((topic_id, partition)) == member.epoch:
                        del self.owned[topic_id, partition]


def target_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The record that deletes a member's target assignment."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, None)


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    """The record that deletes a resolved regular expression."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return GroupRecord(key, None)


def partition_metadata_tombstone(group_id: str) -> GroupRecord:
    """The record that deletes the topic metadata that older brokers stored."""
    return GroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def _stale(member: Member, claim: CommitClaim) -> int:
    if claim.transactional or member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
