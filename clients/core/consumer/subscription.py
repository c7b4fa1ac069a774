"""What a consumer reads: its subscription, its partitions, and its position in each of them.

The consumer's shell, which fetches and returns records, and the group client, which brings
assignments, share it. It sends nothing, waits for nothing and calls no listener; see "Hand-over"
below.

**Threads.** Only the loop changes it, with one exception: returning records moves
`AssignedPartition.position` in the user's thread. Readers get one immutable value.

**Hand-over** of an assignment, by the group client (the shell gives it a `Handover`):

    subscription.begin_revoking(revoked)        # none of their records is handed out any more
    done = await handover.safe_point()          # the user is in poll(): done up to these positions
    await self.commit(done)                     # if enable.auto.commit
    await handover.revoked(revoked)             # the listener's on_partitions_revoked
    subscription.take_away(revoked)
    subscription.give(added)                    # assigned, but not read yet
    subscription.hold_back(tp)                  # KIP-253: not before its prior partitions are read
    await handover.assigned(added)              # the listener's on_partitions_assigned
    subscription.begin_reading(added)           # now the shell places and fetches them
    subscription.let_go(tp)                     # KIP-253: the gate is open

Lost partitions (fenced, or the session expired) are removed without a commit: `begin_revoking`,
`handover.lost`, `take_away`. Listeners run in the user's thread inside `poll()` (sync), or on the
loop while the user is in `poll()` (AIO); that `poll()` raises their exceptions after the hand-over
is done.

**What the shell asks of the group client**: `committed(tps)` for partitions that are being read and
have no position; `on_poll(now_ms)` at the beginning of each `poll()`, in the user's thread, when
all records that were returned before count as consumed: max.poll.interval.ms and the automatic
commit (of `subscription.consumed()` at that moment, sent on the loop) begin there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from kstore.clients.core.consumer.epoch_history import EpochHistory
from kstore.types import TopicPartition

__all__ = [
    "AssignedPartition",
    "Handover",
    "Position",
    "PositionSource",
    "Reset",
    "SubscriptionKind",
    "SubscriptionPattern",
    "SubscriptionState",
]


class Position(NamedTuple):
    """The offset to read next, and the known epochs up to there; -1 for unknown.

    `leader_epoch` is the largest leader epoch of the records below the offset; `partition_epoch` is
    the partition epoch of the last fetch (KIP-232). Commits contain both.
    """

    offset: int
    leader_epoch: int = -1
    partition_epoch: int = -1


class Reset(NamedTuple):
    """Where to start without a valid position: a ListOffsets timestamp, -1 latest, -2 earliest.

    `duration_ms` >= 0 is by_duration: that long before now (KIP-1106); `timestamp` is unused then.
    """

    timestamp: int
    duration_ms: int = -1


class SubscriptionKind(Enum):
    """How the user chose the partitions."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    """A Python regular expression, matched here against the names in metadata."""
    BROKER_PATTERN = "broker pattern"
    """An RE2J expression that the group coordinator matches (KIP-848)."""
    ASSIGNED = "assigned"
    """By the user, partition by partition; without rebalances."""


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression of topic names, in RE2J's syntax, that the broker evaluates (only with
    `group.protocol=consumer`).
    """

    pattern: str


class Handover(Protocol):
    """The shell's side of a hand-over: waits for the user, and calls the rebalance listener."""

    async def safe_point(self) -> Mapping[TopicPartition, Position]:
        """Return when the user is in poll(), or closes the consumer: the positions up to which the
        user is done. `consumed()` may be ahead of them already.
        """

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Call the listener's on_partitions_revoked; nothing for an empty collection."""

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Call the listener's on_partitions_assigned; also for an empty collection, as Kafka
        does.
        """

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Call the listener's on_partitions_lost; nothing for an empty collection."""


class PositionSource(Protocol):
    """Records of a partition that are being returned; it knows the position."""

    next_offset: int
    leader_epoch: int
    partition_epoch: int


class AssignedPartition:
    """A partition of the consumer.

    Invariant: fetched records that were not returned yet are at or above `position`; requests and
    buffers of another `version` are discarded.
    """

    __slots__ = (
        "_position",
        "committed",
        "epochs",
        "gate_closed",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "paused",
        "reading",
        "reset",
        "revoking",
        "source",
        "tp",
        "validated",
        "version",
    )

    def __init__(self, tp: TopicPartition, *, reading: bool) -> None:
        self.tp = tp
        self._position: Position | None = None
        self.source: PositionSource | None = None
        """The records of this version that are being returned; it has the position meanwhile."""
        self.epochs = EpochHistory()
        """The epochs of what was fetched below and above the position, without a gap."""
        self.committed: Position | None = None
        """The last commit, if known; None: not looked up yet, or there is none."""
        self.paused = False
        self.reading = reading
        """False between `give` and `begin_reading`."""
        self.revoking = False
        self.gate_closed = False
        """KIP-253: held back until the partitions before it are read."""
        self.reset: Reset | None = None
        """Set until the position is looked up by timestamp; overrides `position`."""
        self.validated = True
        """False until the position is validated against the leader's log (KIP-320)."""
        self.leader_epoch = -1
        """The leader epoch for which the position is valid, -1 before the first."""
        self.version = 0
        """Increases with each seek, reset, revocation and change of leader."""
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    @property
    def position(self) -> Position | None:
        """The offset to return next; None until a commit, a seek or a reset sets it."""
        source = self.source
        if source is None:
            return self._position
        return Position(source.next_offset, source.leader_epoch, source.partition_epoch)

    @property
    def is_fetchable(self) -> bool:
        """Whether to fetch records from the position."""
        return (
            self.has_position
            and self.validated
            and not self.gate_closed
            and not self.paused
            and self.reading
            and not self.revoking
        )

    @property
    def has_position(self) -> bool:
        """Whether the position is known."""
        return self.reset is None and self.position is not None

    @property
    def may_hand_out(self) -> bool:
        """Whether fetched records may be returned to the user."""
        return not (self.paused or self.revoking or self.gate_closed) and self.reading

    def seek(self, position: Position) -> None:
        """Continue from a position; discards what was fetched.

        With a leader epoch, the position must be validated first.
        """
        self._position = position
        self.epochs = EpochHistory()
        self.source = None
        self.reset = None
        self.validated = position.leader_epoch < 0
        self.leader_epoch = -1
        self.version += 1

    def seek_by_timestamp(self, reset: Reset) -> None:
        """Continue from the first record at a timestamp, after a lookup."""
        self.reset = reset
        self.version += 1

    def meet_partition_epoch(self, partition_epoch: int) -> None:
        """Take the partition's epoch from a fetch; only while no records of the partition are being
        returned.
        """
        if self._position is not None:
            self._position = self._position._replace(partition_epoch=partition_epoch)

    def begin_handing_out(self, source: PositionSource) -> None:
        """From now on the source has the position. Called in the user's thread."""
        self.source = source

    def end_handing_out(self) -> None:
        """Keep the source's position. Called in the user's thread."""
        self._position = self.position
        self.source = None

    def discard_fetched(self) -> None:
        """Discard what was fetched and not returned; the position stays."""
        self.version += 1


class SubscriptionState:
    """The subscription and the assignment of one consumer. `changed` is called after each change
    of the subscription, `reassigned` after each change of the assignment.
    """

    def __init__(self) -> None:
        self.kind = SubscriptionKind.NONE
        self.topics: frozenset[str] = frozenset()
        """The topics subscribed to; for PATTERN the names that matched last."""
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: str | None = None
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.subscription_version = 0
        """Increases with each change of the subscription."""
        self.changed: list[Callable[[], None]] = []
        self.reassigned: list[Callable[[], None]] = []

    # Calls of the user.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics by name, instead of the former ones.

        Partitions stay until the group takes them away. Raises ValueError after `assign`.
        """
        self._set(SubscriptionKind.TOPICS, frozenset(topics))

    def subscribe_pattern(self, pattern: re.Pattern[str] | SubscriptionPattern) -> None:
        """Subscribe to topics by a regular expression that matches the whole name.

        Raises ValueError after `assign`.
        """
        if isinstance(pattern, SubscriptionPattern):
            self._set(SubscriptionKind.BROKER_PATTERN, frozenset(), broker_pattern=pattern.pattern)
        else:
            self._set(SubscriptionKind.PATTERN, frozenset(), pattern=pattern)

    def match(self, names: Iterable[str]) -> bool:
        """For PATTERN: the names that exist now. Returns True if the matching ones have changed."""
        if self.pattern is None:
            return False
        found = frozenset(name for name in names if self.pattern.fullmatch(name))
        if found == self.topics:
            return False
        self.topics = found
        self._notify_changed()
        return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without rebalances; partitions that were read before keep their
        positions.

        Raises ValueError after `subscribe`.
        """
        if self.kind not in (SubscriptionKind.NONE, SubscriptionKind.ASSIGNED):
            raise ValueError(
                "the consumer is subscribed to topics: call unsubscribe() before assign()"
            )
        self.kind = SubscriptionKind.ASSIGNED
        wanted = list(dict.fromkeys(TopicPartition(*tp) for tp in partitions))
        before = self.partitions
        self._drop(tp for tp in list(before) if tp not in set(wanted))
        self.partitions = {
            tp: before.get(tp) or AssignedPartition(tp, reading=True) for tp in wanted
        }
        self._notify_reassigned()

    def unsubscribe(self) -> None:
        """Remove the subscription and all partitions. The group client has left the group
        before.
        """
        self._drop(list(self.partitions))
        self.kind = SubscriptionKind.NONE
        self.topics, self.pattern, self.broker_pattern = frozenset(), None, None
        self._notify_changed()
        self._notify_reassigned()

    def _set(
        self,
        kind: SubscriptionKind,
        topics: frozenset[str],
        pattern: re.Pattern[str] | None = None,
        broker_pattern: str | None = None,
    ) -> None:
        if self.kind is SubscriptionKind.ASSIGNED:
            raise ValueError(
                "the consumer has assigned partitions: call unsubscribe() before subscribe()"
            )
        self.kind, self.topics = kind, topics
        self.pattern, self.broker_pattern = pattern, broker_pattern
        self._notify_changed()

    @property
    def uses_group(self) -> bool:
        """Whether a group's coordinator assigns the partitions."""
        return self.kind not in (SubscriptionKind.NONE, SubscriptionKind.ASSIGNED)

    # Calls of the group client; see "Hand-over" above.

    def give(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; they are not read before `begin_reading`."""
        for tp in partitions:
            if tp not in self.partitions:
                self.partitions[tp] = AssignedPartition(tp, reading=False)
        self._notify_reassigned()

    def begin_reading(self, partitions: Iterable[TopicPartition]) -> None:
        """The listener knows the partitions: start to place and fetch them. Unknown ones are
        ignored.
        """
        for tp in partitions:
            if row := self.partitions.get(tp):
                row.reading = True
        self._notify_reassigned()

    def begin_revoking(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; fetched records are discarded. Positions stay, for a last
        commit.
        """
        for tp in partitions:
            if row := self.partitions.get(tp):
                row.revoking = True
                row.version += 1

    def take_away(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions."""
        self._drop(partitions)
        self._notify_reassigned()

    def hold_back(self, tp: TopicPartition) -> None:
        """KIP-253: find the partition's position, but do not fetch it before `let_go`."""
        self.partitions[tp].gate_closed = True

    def let_go(self, tp: TopicPartition) -> None:
        """KIP-253: the records that must be read first have been read. Unknown ones are ignored."""
        if row := self.partitions.get(tp):
            row.gate_closed = False
            self._notify_reassigned()

    # Positions.

    def assigned(self) -> list[TopicPartition]:
        """The partitions, in the order of assignment."""
        return list(self.partitions)

    def consumed(self) -> dict[TopicPartition, Position]:
        """The positions: what a commit of all returned records contains."""
        rows = list(self.partitions.items())
        return {tp: row.position for tp, row in rows if row.position is not None and not row.reset}

    def note_committed(self, offsets: dict[TopicPartition, Position]) -> None:
        """The coordinator has committed these, or has reported them."""
        for tp, position in offsets.items():
            if row := self.partitions.get(tp):
                row.committed = position

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in list(partitions):
            if row := self.partitions.pop(tp, None):
                row.version += 1
                row.revoking = True

    def _notify_changed(self) -> None:
        self.subscription_version += 1
        for call in self.changed:
            call()

    def _notify_reassigned(self) -> None:
        for call in self.reassigned:
            call()
