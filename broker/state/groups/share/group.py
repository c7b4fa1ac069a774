"""A share group (KIP-932): epochs, members, target assignment, and the stages of the
share-partitions' state. It makes no decisions. Its records define it.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from kstore.broker.state.groups.contract import CommitClaim
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.share.member import (
    Assigned,
    Member,
    current_tombstone,
    member_tombstone,
    target_tombstone,
)
from kstore.broker.state.groups.share.states import NO_STATES, states_tombstone
from kstore.broker.state.groups.timers import TimerChange
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.share_groups import (
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
)

__all__ = ["SHARE_KIND", "ShareGroup"]

SHARE_KIND = "share"
FIRST_EPOCH = 1


class ShareGroup:
    """The group. Invariants: member epoch <= target assignment epoch <= group epoch; a target names
    no partition whose state was never initialized.
    """

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "deletions",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "seen_image_version",
        "states",
        "target",
        "topic_counts",
    )
    kind = SHARE_KIND
    protocol_type = SHARE_KIND

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        self.topic_counts: Counter[str] = Counter()
        """Topic name to the number of members that subscribe to it."""
        self.target: dict[str, Assigned] = {}
        """Member id to its target."""
        self.states = NO_STATES
        self.deletions: frozenset[UUID] = frozenset()
        """Topics whose state this coordinator is deleting. Soft state."""
        self.seen_image_version = -1
        """The version of the metadata for which `metadata_hash` was compared last. Soft state."""

    # ---- the contract of all groups ----

    @property
    def state(self) -> str:
        """The state's name in ListGroups and ShareGroupDescribe."""
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """False: a share group and the state of its share-partitions exist until it is deleted."""
        return False

    def commit_error(self, claim: CommitClaim) -> int:
        """Always an error: the share coordinator stores the positions of share groups."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def partition_commit_error(
        self, claim: CommitClaim, topic: str, topic_id: UUID, partition: int
    ) -> int:
        """As `commit_error`."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def owns(self, member_id: str, topic: str, topic_id: UUID, partition: int) -> bool:
        """False: members share partitions."""
        return False

    def commit_timers(self, claim: CommitClaim) -> tuple[TimerChange, ...]:
        """Empty: only heartbeats extend a session."""
        return ()

    def fetch_error(self, member_id: str | None, member_epoch: int) -> int:
        """NONE: the response is that there are no offsets."""
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member names the topic."""
        return topic in self.topic_counts

    def retained_since(self, commit_timestamp: int) -> int | None:
        """None: it has no offsets."""
        return None

    def delete_error(self) -> int:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def delete_offsets_error(self) -> int:
        """OffsetDelete does not know share groups; DeleteShareGroupOffsets does."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete the group."""
        group_id = self.group_id
        records = [current_tombstone(group_id, member_id) for member_id in self.members]
        records += [target_tombstone(group_id, member_id) for member_id in self.members]
        key = ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
        records.append(GroupRecord(key, None))
        records += [member_tombstone(group_id, member_id) for member_id in self.members]
        if self.states != NO_STATES:
            records.append(states_tombstone(group_id))
        records.append(GroupRecord(ShareGroupMetadataKey(group_id=group_id), None))
        return records

    # ---- replay ----

    def put(self, member: Member) -> None:
        """Insert or replace a member."""
        self.remove(member.member_id)
        self.members[member.member_id] = member
        self.topic_counts.update(member.topics)

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        member = self.members.pop(member_id, None)
        for topic in () if member is None else member.topics:
            self.topic_counts[topic] -= 1
            if not self.topic_counts[topic]:
                del self.topic_counts[topic]
