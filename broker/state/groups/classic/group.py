"""A classic consumer group as a value: members, generation, state. It makes no decisions.

A step works on a copy (step.py), or decides on an `Edit`. records.py has the persisted part.
The rest (parked joins and syncs, pending members) is lost with the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.contract import CommitClaim
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import Edit, Token
from kstore.broker.state.groups.timers import HeartbeatExpired, TimerChange, heartbeat_key
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.coordinator_records.classic import GroupMetadataKey
from kstore.protocol.groups.consumer_protocol import ConsumerProtocolSubscription

__all__ = [
    "COMPLETING_REBALANCE",
    "CONSUMER_PROTOCOL_TYPE",
    "DEAD",
    "EMPTY",
    "PREPARING_REBALANCE",
    "STABLE",
    "ClassicGroup",
    "ClassicMember",
    "member_error",
    "session_timer",
]

EMPTY = "Empty"
PREPARING_REBALANCE = "PreparingRebalance"
COMPLETING_REBALANCE = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"

VALID_PREVIOUS: Mapping[str, frozenset[str]] = {
    EMPTY: frozenset({PREPARING_REBALANCE}),
    PREPARING_REBALANCE: frozenset({STABLE, COMPLETING_REBALANCE, EMPTY}),
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
    STABLE: frozenset({COMPLETING_REBALANCE}),
}
"""State to the states from which a group can enter it. A deleted group is removed, so no group is
ever Dead.
"""

CONSUMER_PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION_BYTES = 2


class ClassicMember(NamedTuple):
    """One member. ``protocols`` are (name, metadata) in the member's order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    awaiting_join: Token = None
    awaiting_sync: Token = None
    is_new: bool = False
    """Whether it has joined but is not in a generation yet. It cannot send heartbeats then, so only
    its own timeout removes it.
    """

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol. Empty if it has sent none."""
        for name, data in self.protocols:
            if name == protocol_name:
                return data
        return b""


class ClassicGroup:
    """The group. Invariants: there is a leader if and only if there are members, and the leader is
    a member; every static member id is a member; ``supported`` and ``joined`` are counts over
    ``members``.
    """

    __slots__ = (
        "generation_id",
        "group_id",
        "joined",
        "lacking",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "supported",
    )
    kind = "classic"

    def __init__(self, group_id: str, state_timestamp_ms: int) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()
        self.joined = 0
        """How many members wait for the join phase to end."""
        self.supported: dict[str, int] = {}
        """Protocol name to the number of members that support it."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that members subscribe to. None: not known, because the members do not use the
        consumer's embedded protocol.
        """
        self.new_member_added = False
        self.lacking: frozenset[str] = frozenset()
        """Topics of which members do not get some partitions yet (held_back.py). Soft state."""

    def copy(self) -> ClassicGroup:
        """A copy that shares no mutable part."""
        other = object.__new__(ClassicGroup)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, dict | set) else value)
        return other

    @property
    def is_simple(self) -> bool:
        """Whether only offsets were ever committed under this group id."""
        return self.protocol_type is None and self.state == EMPTY and not self.pending_join

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and none that is joining."""
        return self.state == EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether it can be deleted as soon as it has no offsets left."""
        return self.state == EMPTY and not self.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members' metadata are consumer subscriptions."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined."""
        return len(self.members) == self.joined and not self.pending_join

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start in the current state."""
        return self.state in VALID_PREVIOUS[PREPARING_REBALANCE]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: ClassicMember) -> None:
        """Add a new member. The first one sets the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.put(member)
        self.pending_join.discard(member.member_id)

    def put(self, member: ClassicMember) -> None:
        """Insert or replace a member by its id, and update the counts."""
        self._discount(self.members.get(member.member_id))
        self.members[member.member_id] = member
        self.joined += member.awaiting_join is not None
        for name, _ in member.protocols:
            self.supported[name] = self.supported.get(name, 0) + 1

    def replace(self, member: ClassicMember) -> None:
        """Replace a member by one with the same protocols."""
        old = self.members[member.member_id]
        self.joined += (member.awaiting_join is not None) - (old.awaiting_join is not None)
        self.members[member.member_id] = member

    def make(self, edit: Edit) -> None:
        """Change one member in place. No decision is being made, so no step has a copy."""
        if edit.pending:
            self.pending_join.add(edit.pending)
        elif edit.member.member_id in self.members:
            self.replace(edit.member)
        else:
            self.note_new_member()
            self.add(edit.member)
        if edit.has_synced:
            self.pending_sync.discard(edit.member.member_id)

    def note_new_member(self) -> None:
        """A member joins that is not in the group yet: a new group waits longer for more."""
        if self.state == PREPARING_REBALANCE and self.previous_state == EMPTY:
            self.new_member_added = True

    def remove(self, member_id: str) -> None:
        """Remove a member or pending member, if it exists. If it was the leader, the next member
        becomes the leader.
        """
        member = self.members.pop(member_id, None)
        self._discount(member)
        if member is not None and member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def rename_static(self, group_instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member a new member id, with its assignment and leadership, and
        return it.
        """
        old = self.members.pop(self.static_members[group_instance_id])
        self._discount(old)
        self.pending_sync.discard(old.member_id)
        renamed = old._replace(
            member_id=new_member_id, awaiting_join=None, awaiting_sync=None, is_new=False
        )
        self.put(renamed)
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        return renamed

    def _discount(self, member: ClassicMember | None) -> None:
        if member is None:
            return
        self.joined -= member.awaiting_join is not None
        for name, _ in member.protocols:
            self.supported[name] -= 1
            if not self.supported[name]:
                del self.supported[name]

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a client with this protocol type and these protocols can be a member."""
        if self.state == EMPTY:
            return bool(protocol_type and names)
        return self.protocol_type == protocol_type and any(
            self.supported.get(name, 0) == len(self.members) for name in names
        )

    def select_protocol(self) -> Work[str]:
        """The protocol that most members prefer, of those that all members support. In a tie, the
        leader's order decides.
        """
        candidates = {name for name, count in self.supported.items() if count == len(self.members)}
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
            yield
        preferred = self.members[self.leader_id or ""].protocols
        return max((name for name, _ in preferred if name in votes), key=votes.__getitem__)

    def transition_to(self, state: str, now_ms: int) -> None:
        """Enter a state. The current state must allow it."""
        assert self.state in VALID_PREVIOUS[state], (self.group_id, self.state, state)
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def start_generation(self, now_ms: int) -> Work[None]:
        """Begin the next generation. The state is Empty without members, else CompletingRebalance
        with the selected protocol.
        """
        self.generation_id += 1
        self.pending_sync.clear()
        self.protocol_name = (yield from self.select_protocol()) if self.members else None
        self.subscribed_topics = yield from self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)

    def compute_subscribed_topics(self) -> Work[frozenset[str] | None]:
        """All topics in the members' consumer subscriptions. None if they cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        read: set[bytes] = set()
        for member in self.members.values():
            metadata = member.metadata(self.protocol_name)
            if metadata not in read:
                subscribed = _subscription_topics(metadata)
                if subscribed is None:
                    return None
                topics.update(subscribed)
                read.add(metadata)
            yield
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be consuming the topic. True for consumers whose subscriptions
        cannot be read.
        """
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def commit_error(self, claim: CommitClaim) -> int:
        """Members may commit in their generation, other clients while the group is empty. A commit
        in a transaction is allowed in any state, also from a producer that names no member.
        """
        if claim.epoch < 0 and self.state == EMPTY:
            return ErrorCode.NONE
        if not claim.is_anonymous:
            error_code = member_error(self, claim.member_id, claim.group_instance_id)
            if error_code != ErrorCode.NONE:
                return error_code
            if claim.epoch != self.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not claim.transactional:
            # A consumer that manages its partitions itself may not write into an active group.
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state == COMPLETING_REBALANCE and not claim.transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def partition_commit_error(
        self, claim: CommitClaim, topic: str, topic_id: UUID, partition: int
    ) -> int:
        """Always NONE: a classic group does not know which member owns a partition."""
        return ErrorCode.NONE

    def owns(self, member_id: str, topic: str, topic_id: UUID, partition: int) -> bool:
        """Whether it is a member. The group does not know which partitions a member owns."""
        return member_id in self.members

    def commit_timers(self, claim: CommitClaim) -> tuple[TimerChange, ...]:
        """A commit extends the session, as a heartbeat does."""
        if claim.transactional or self.state not in (STABLE, PREPARING_REBALANCE):
            return ()
        member = self.members.get(claim.member_id)
        return () if member is None else (session_timer(self.group_id, member),)

    def fetch_error(self, member_id: str | None, member_epoch: int) -> int:
        """Always NONE: any client may read a classic group's offsets."""
        return ErrorCode.NONE

    def retained_since(self, commit_timestamp: int) -> int | None:
        """KIP-211: when the group became empty, or the time of the commit if the group never had
        members. In an active group, offsets expire only in topics that no member consumes.
        """
        if self.protocol_type is None:
            return commit_timestamp
        if self.state == EMPTY:
            since_ms = self.state_timestamp_ms
            return commit_timestamp if since_ms == -1 else since_ms
        readable = self.state == STABLE and self.subscribed_topics is not None
        return commit_timestamp if readable else None

    def delete_error(self) -> int:
        """Only an empty group can be deleted."""
        return ErrorCode.NONE if self.state == EMPTY else ErrorCode.NON_EMPTY_GROUP

    def delete_offsets_error(self) -> int:
        """In an active group, offsets can be deleted only if the members are consumers, whose
        subscriptions are known.
        """
        if self.state == EMPTY or self.uses_consumer_protocol:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete the group itself, without its offsets."""
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)]


def session_timer(
    group_id: str, member: ClassicMember, timeout_ms: int | None = None
) -> TimerChange:
    """The timer that restarts the member's session."""
    return TimerChange(
        heartbeat_key(group_id, member.member_id),
        member.session_timeout_ms if timeout_ms is None else timeout_ms,
        HeartbeatExpired(group_id, member.member_id),
    )


def member_error(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> int:
    """NONE if the ids name a current member, else UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID
    (KIP-345).
    """
    if group_instance_id is not None:
        present = group.static_members.get(group_instance_id)
        if present is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if present != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _subscription_topics(metadata: bytes) -> list[str] | None:
    """The topics in a consumer's subscription of any version. None if it is malformed."""
    try:
        subscription = ConsumerProtocolSubscription.decode(
            metadata, 0, offset=SUBSCRIPTION_VERSION_BYTES, allow_trailing=True
        )
    except ProtocolError:
        return None
    return subscription.topics
