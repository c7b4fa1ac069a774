"""The interface between a shard and every kind of group (classic, consumer, share, streams), and
the parts of a shard that handlers may read. It has no rules.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol
from uuid import UUID

from kstore.broker.state.groups.offsets import Offsets
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.groups.timers import TimerChange

__all__ = ["CommitClaim", "Group", "ShardState", "absence"]


FIRST_MEMBER_EPOCH_VERSION = 9
"""The first version of OffsetCommit whose generation may be a member epoch."""


class CommitClaim(NamedTuple):
    """What a commit claims about its sender: ids, and generation or member epoch."""

    member_id: str
    group_instance_id: str | None
    epoch: int
    api_version: int
    transactional: bool = False
    needs_assignment: bool = False
    """Whether the partition must be assigned to the member even if the commit has the current
    member epoch.
    """

    @property
    def is_anonymous(self) -> bool:
        """Whether it names no member: the sender is an administrator, or a consumer outside any
        group.
        """
        return self.epoch < 0 and not self.member_id and self.group_instance_id is None

    def is_let_in(self, group_has_members: bool) -> bool:
        """Whether a group with member epochs accepts a commit without a member: from an
        administrator if the group is empty, or in a transaction.
        """
        if self.epoch < 0 and not group_has_members:
            return True
        return self.transactional and self.epoch == -1 and self.is_anonymous

    @property
    def knows_member_epochs(self) -> bool:
        """Whether the request's version has member epochs."""
        return self.transactional or self.api_version >= FIRST_MEMBER_EPOCH_VERSION


class Group(Protocol):
    """A group of any kind. Errors are codes of kstore.errors; NONE means allowed."""

    group_id: str

    @property
    def kind(self) -> str:
        """``classic``, ``consumer``, ``share`` or ``streams``: the group type of ListGroups."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of ListGroups."""

    @property
    def state(self) -> str:
        """The state's name, as in ListGroups."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def is_unused(self) -> bool:
        """Whether the group can be deleted as soon as it has no offsets."""

    def commit_error(self, claim: CommitClaim) -> int:
        """The error if the claim's member may not commit at all. It applies to every partition."""

    def partition_commit_error(
        self, claim: CommitClaim, topic: str, topic_id: UUID, partition: int
    ) -> int:
        """The error if the claim's member may not commit this partition. It applies to every
        partition, too.
        """

    def owns(self, member_id: str, topic: str, topic_id: UUID, partition: int) -> bool:
        """Whether a member has a partition, or has not given it up yet, as far as the group
        knows.
        """

    def commit_timers(self, claim: CommitClaim) -> tuple[TimerChange, ...]:
        """The timers that a commit restarts."""

    def fetch_error(self, member_id: str | None, member_epoch: int) -> int:
        """The error if a member may not read offsets (OffsetFetch 9+)."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be consuming the topic, so that its offsets must not expire."""

    def retained_since(self, commit_timestamp: int) -> int | None:
        """When the retention of an offset began, in ms. None if it has not begun."""

    def delete_error(self) -> int:
        """The error if DeleteGroups cannot delete the group, or NONE."""

    def delete_offsets_error(self) -> int:
        """The error if OffsetDelete cannot delete any offset, or NONE."""

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete the group itself, without its offsets."""


class ShardState(Protocol):
    """The parts of a shard that handlers may read, but not change: see
    coordinator/coordinator_shard.py.
    """

    @property
    def settings(self) -> GroupSettings:
        """The broker's settings for groups."""

    @property
    def groups(self) -> dict[str, Group]:
        """All groups by id."""

    @property
    def offsets(self) -> Offsets:
        """All committed offsets."""


def absence(group: Group | None, group_id: str, wanted: str) -> str:
    """The message for a request whose group is missing or of another kind."""
    if group is None:
        return f"Group {group_id} not found. There is no group of this id."
    return f"Group {group_id} is a {group.kind} group: this needs a {wanted} group."
