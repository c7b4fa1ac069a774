"""A streams group: members, epochs, tasks, topology. It makes no decisions.

records.py replays the persisted part. `SoftState` is lost with the coordinator. Invariant:
assignment epoch of an active task <= member epoch <= target assignment epoch <= group epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.contract import CommitClaim
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.streams.tasks import (
    NO_ASSIGNED_TASKS,
    AssignedTasks,
    TaskId,
    Tasks,
)
from kstore.broker.state.groups.streams.tombstones import group_tombstones
from kstore.broker.state.groups.streams.topics import ConfiguredTopology
from kstore.broker.state.groups.streams.topology import Topology
from kstore.broker.state.groups.timers import TimerChange
from kstore.errors import ErrorCode

__all__ = [
    "ASSIGNING",
    "EMPTY",
    "NOT_READY",
    "RECONCILING",
    "STABLE",
    "STREAMS_KIND",
    "MemberState",
    "SoftState",
    "StreamsGroup",
    "StreamsMember",
]

STREAMS_KIND = "streams"
EMPTY = "Empty"
NOT_READY = "NotReady"
ASSIGNING = "Assigning"
RECONCILING = "Reconciling"
STABLE = "Stable"

INITIAL_EPOCH = 1
UNASSIGNED_EPOCH = 2**31 - 1


class MemberState:
    """The states of a member in its current assignment record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It must give up tasks before it can enter the next epoch."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others have not given up yet."""
    UNKNOWN = 127
    """Written by a newer coordinator: the member must join again."""
    ALL = frozenset({STABLE, UNREVOKED_TASKS, UNRELEASED_TASKS})


class StreamsMember(NamedTuple):
    """One member: a thread of an instance of the application."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: tuple[str, int] | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    """Sorted by key."""
    assigned: AssignedTasks = NO_ASSIGNED_TASKS
    pending_revocation: AssignedTasks = NO_ASSIGNED_TASKS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has reached the target assignment of that epoch."""
        return self.state == MemberState.STABLE and self.member_epoch == assignment_epoch

    def assignment_epoch(self, task: TaskId) -> int:
        """The epoch in which the member got the active task, including one that it is giving up.
        The largest int32 for a task that it does not have.
        """
        epoch = self.assigned.active.get(task, self.pending_revocation.active.get(task))
        return UNASSIGNED_EPOCH if epoch is None else epoch


class SoftState(NamedTuple):
    """State that is not in records. A new coordinator starts without it."""

    configured: ConfiguredTopology | None = None
    image_version: int = -1
    """The metadata version for which the topics were last checked."""
    delay_pending: bool = False
    """Whether the initial rebalance delay is running."""
    shutdown_member_id: str | None = None
    """The member that has requested a shutdown of the application."""
    endpoint_epoch: int = 0
    """Increases when the tasks of a member with a user endpoint change."""


class StreamsGroup:
    """The group. ``active_owners`` and the other indexes are derived from the members. Tasks that
    are being given up still have their owner.
    """

    __slots__ = (
        "active_owners",
        "assignment_configs",
        "assignment_epoch",
        "assignment_timestamp",
        "group_epoch",
        "group_id",
        "members",
        "metadata_hash",
        "soft",
        "standby_owners",
        "targets",
        "topology",
        "validated_topology_epoch",
        "warmup_owners",
    )
    kind = STREAMS_KIND
    protocol_type = "streams"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        """The last settings of the assignor, by name."""
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp = 0
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, Tasks] = {}
        self.active_owners: dict[TaskId, str] = {}
        """Active task to its process."""
        self.standby_owners: dict[TaskId, frozenset[str]] = {}
        self.warmup_owners: dict[TaskId, frozenset[str]] = {}
        self.soft = SoftState()

    # ---- members ----

    def put(self, member: StreamsMember) -> None:
        """Insert or replace a member."""
        self._disown(self.members.get(member.member_id))
        self.members[member.member_id] = member
        for tasks in (member.assigned, member.pending_revocation):
            for task in tasks.active:
                self.active_owners[task] = member.process_id
            _own(self.standby_owners, tasks.standby, member.process_id)
            _own(self.warmup_owners, tasks.warmup, member.process_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        self._disown(self.members.pop(member_id, None))
        if not self.members:
            self.soft = self.soft._replace(shutdown_member_id=None)

    def _disown(self, member: StreamsMember | None) -> None:
        if member is None:
            return
        for tasks in (member.assigned, member.pending_revocation):
            for task in tasks.active:
                if self.active_owners.get(task) == member.process_id:
                    del self.active_owners[task]
            _release(self.standby_owners, tasks.standby, member.process_id)
            _release(self.warmup_owners, tasks.warmup, member.process_id)

    # ---- the contract of all groups ----

    @property
    def state(self) -> str:
        """The state's name."""
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        members = self.members.values()
        done = all(member.is_reconciled_to(self.assignment_epoch) for member in members)
        return STABLE if done else RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether it can be deleted as soon as it has no offsets left."""
        return not self.members

    def commit_error(self, claim: CommitClaim) -> int:
        """A member may commit with its epoch, or an earlier one: see partition_commit_error."""
        if claim.is_let_in(bool(self.members)):
            return ErrorCode.NONE
        member = self.members.get(claim.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not claim.knows_member_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if claim.epoch <= member.member_epoch else _stale(claim)

    def partition_commit_error(
        self, claim: CommitClaim, topic: str, topic_id: UUID, partition: int
    ) -> int:
        """KAFKA-19779: a commit in an earlier epoch is fenced if it may be from before the
        partition's active task was assigned to this member, or after it was revoked. In the
        member's current epoch any partition is allowed, unless the claim requires the assignment.
        """
        member = self.members.get(claim.member_id)
        if member is None:  # a commit without a member, which commit_error has allowed
            return ErrorCode.NONE
        if claim.epoch == member.member_epoch and not claim.needs_assignment:
            return ErrorCode.NONE
        sources = {} if self.topology is None else self.topology.source_topics
        subtopology_id = sources.get(topic)
        if subtopology_id is None:
            return _stale(claim)
        since = member.assignment_epoch(TaskId(subtopology_id, partition))
        return ErrorCode.NONE if since <= claim.epoch <= member.member_epoch else _stale(claim)

    def owns(self, member_id: str, topic: str, topic_id: UUID, partition: int) -> bool:
        """Whether the member has the active task that reads the partition."""
        member = self.members.get(member_id)
        sources = {} if self.topology is None else self.topology.source_topics
        subtopology_id = sources.get(topic)
        if member is None or subtopology_id is None:
            return False
        return member.assignment_epoch(TaskId(subtopology_id, partition)) != UNASSIGNED_EPOCH

    def commit_timers(self, claim: CommitClaim) -> tuple[TimerChange, ...]:
        """Empty: a commit does not extend a session."""
        return ()

    def fetch_error(self, member_id: str | None, member_epoch: int) -> int:
        """A request that names a member must have its epoch."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        known = member.member_epoch == member_epoch
        return ErrorCode.NONE if known else ErrorCode.STALE_MEMBER_EPOCH

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the topology reads the topic and the group has members."""
        has_topic = self.topology is not None and topic in self.topology.source_topics
        return has_topic and bool(self.members)

    def retained_since(self, commit_timestamp: int) -> int | None:
        """An offset's retention begins with its commit."""
        return commit_timestamp

    def delete_error(self) -> int:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def delete_offsets_error(self) -> int:
        """Offsets of topics that are not read can always be deleted."""
        return ErrorCode.NONE

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete the group."""
        return group_tombstones(self.group_id, self.members)


def _stale(claim: CommitClaim) -> int:
    transactional = claim.transactional
    return ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH


def _own(owners: dict[TaskId, frozenset[str]], tasks: frozenset[TaskId], process_id: str) -> None:
    for task in tasks:
        owners[task] = owners.get(task, frozenset()) | {process_id}


def _release(
    owners: dict[TaskId, frozenset[str]], tasks: frozenset[TaskId], process_id: str
) -> None:
    for task in tasks:
        left = owners.get(task, frozenset()) - {process_id}
        if left:
            owners[task] = left
        else:
            owners.pop(task, None)
