"""What a consumer reads: its subscription, its partitions, and where it stands in each of them.

Shared by the consumer's shell, which fetches and hands out, and the group client, which brings
assignments. It asks nobody, waits for nothing and calls no listener; see "Hand-over" below.

**Threads.** All of it is changed on the loop, with one exception: handing records out moves
`AssignedPartition.position` in the user's thread. What is read of it is one immutable value.

**Hand-over** of an assignment, as the group client does it (the shell gives it a `Handover`):

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

Lost partitions (fenced, session over) go without a commit: `begin_revoking`, `handover.lost`,
`take_away`. Listeners run in the user's thread inside `poll()` (sync), or on the loop while the
user is in `poll()` (AIO); what they raise is raised by that `poll()`, after the hand-over is done.

**What the shell asks of the group client**: `committed(tps)` for partitions that are being read and
have no position; `on_poll(now_ms)` at the beginning of each `poll()`, in the user's thread, when
all that was handed out before counts as consumed: max.poll.interval.ms and the automatic commit
(of `subscription.consumed()` at that moment, sent on the loop) begin there.
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
    """An offset to read next, and what is known of the log up to there; -1 for unknown.

    `leader_epoch` is the largest leader epoch of the records below the offset; `partition_epoch`
    that of the last fetch (KIP-232). Both go with commits.
    """

    offset: int
    leader_epoch: int = -1
    partition_epoch: int = -1


class Reset(NamedTuple):
    """Where to begin without a valid position: a ListOffsets timestamp, -1 latest, -2 earliest.

    `duration_ms` >= 0 is by_duration: so long before now (KIP-1106); `timestamp` is unused then.
    """

    timestamp: int
    duration_ms: int = -1


class SubscriptionKind(Enum):
    """How the partitions were asked for."""

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
    """An RE2J regular expression of topic names for the broker (only `group.protocol=consumer`)."""

    pattern: str


class Handover(Protocol):
    """The shell's side of a hand-over: waits for the user, and runs the rebalance listener."""

    async def safe_point(self) -> Mapping[TopicPartition, Position]:
        """Return once the user is in poll(), or closes the consumer: what it is done with then.
        `consumed()` may be ahead of it already.
        """

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Run the listener's on_partitions_revoked; nothing for an empty collection."""

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Run the listener's on_partitions_assigned; for an empty collection too, as Kafka does."""

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Run the listener's on_partitions_lost; nothing for an empty collection."""


class PositionSource(Protocol):
    """What is being handed out of a partition; it knows how far that has come."""

    next_offset: int
    leader_epoch: int
    partition_epoch: int


class AssignedPartition:
    """One partition that the consumer has.

    Invariant: what has been fetched and not yet handed out lies at or above `position`; whatever
    was asked for or buffered under another `version` is thrown away.
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
        """What is being handed out, of this version; it has the position then."""
        self.epochs = EpochHistory()
        """Of what was fetched below and above the position, without a gap between them."""
        self.committed: Position | None = None
        """What is known of the last commit; None: not asked yet, or there is none."""
        self.paused = False
        self.reading = reading
        """False between `give` and `begin_reading`."""
        self.revoking = False
        self.gate_closed = False
        """KIP-253: held back until the partitions before it are read."""
        self.reset: Reset | None = None
        """Set while the position is to be looked up by timestamp; overrules `position`."""
        self.validated = True
        """False while the position is to be checked against the log of its leader (KIP-320)."""
        self.leader_epoch = -1
        """The leader epoch for which the position is valid, -1 before the first."""
        self.version = 0
        """Grows with each seek, reset, revocation and change of leader."""
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    @property
    def position(self) -> Position | None:
        """What is handed out next; None until placed by a commit, a seek or a reset."""
        source = self.source
        if source is None:
            return self._position
        return Position(source.next_offset, source.leader_epoch, source.partition_epoch)

    @property
    def is_fetchable(self) -> bool:
        """Whether to ask a broker for records from the position."""
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
        """Whether it is known where to continue."""
        return self.reset is None and self.position is not None

    @property
    def may_hand_out(self) -> bool:
        """Whether records that were fetched may be given to the user."""
        return not (self.paused or self.revoking or self.gate_closed) and self.reading

    def seek(self, position: Position) -> None:
        """Go on from a position; all that was fetched is thrown away.

        A leader epoch makes it one to be validated first.
        """
        self._position = position
        self.epochs = EpochHistory()
        self.source = None
        self.reset = None
        self.validated = position.leader_epoch < 0
        self.leader_epoch = -1
        self.version += 1

    def seek_by_timestamp(self, reset: Reset) -> None:
        """Go on from the first record at a timestamp, once somebody has looked it up."""
        self.reset = reset
        self.version += 1

    def meet_partition_epoch(self, partition_epoch: int) -> None:
        """The partition's epoch as a fetch told it; only while nothing of it is handed out."""
        if self._position is not None:
            self._position = self._position._replace(partition_epoch=partition_epoch)

    def begin_handing_out(self, source: PositionSource) -> None:
        """From now on the source has the position. In the user's thread."""
        self.source = source

    def end_handing_out(self) -> None:
        """The position stays where the source has come to. In the user's thread."""
        self._position = self.position
        self.source = None

    def discard_fetched(self) -> None:
        """Throw away what was fetched and not yet handed out; the position stays."""
        self.version += 1


class SubscriptionState:
    """The subscription and the assignment of one consumer. `changed` is called after each change
    of the subscription, `reassigned` after each change of the assignment.
    """

    def __init__(self) -> None:
        self.kind = SubscriptionKind.NONE
        self.topics: frozenset[str] = frozenset()
        """The topics subscribed to; for PATTERN those that matched at last."""
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: str | None = None
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.subscription_version = 0
        """Grows with each change of what is subscribed to."""
        self.changed: list[Callable[[], None]] = []
        self.reassigned: list[Callable[[], None]] = []

    # What the user asks for.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Ask for topics by name, instead of those asked for before.

        Partitions stay until the group takes them away. ValueError after `assign`.
        """
        self._set(SubscriptionKind.TOPICS, frozenset(topics))

    def subscribe_pattern(self, pattern: re.Pattern[str] | SubscriptionPattern) -> None:
        """Ask for topics by a regular expression that matches a name from its beginning to its end.

        ValueError after `assign`.
        """
        if isinstance(pattern, SubscriptionPattern):
            self._set(SubscriptionKind.BROKER_PATTERN, frozenset(), broker_pattern=pattern.pattern)
        else:
            self._set(SubscriptionKind.PATTERN, frozenset(), pattern=pattern)

    def match(self, names: Iterable[str]) -> bool:
        """With PATTERN: the names that exist now; True if the matching ones have changed."""
        if self.pattern is None:
            return False
        found = frozenset(name for name in names if self.pattern.fullmatch(name))
        if found == self.topics:
            return False
        self.topics = found
        self._tell_changed()
        return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without rebalances; positions of those read before are kept.

        ValueError after `subscribe`.
        """
        if self.kind not in (SubscriptionKind.NONE, SubscriptionKind.ASSIGNED):
            raise ValueError("there is a subscription: unsubscribe() before assign()")
        self.kind = SubscriptionKind.ASSIGNED
        wanted = list(dict.fromkeys(TopicPartition(*tp) for tp in partitions))
        before = self.partitions
        self._drop(tp for tp in list(before) if tp not in set(wanted))
        self.partitions = {
            tp: before.get(tp) or AssignedPartition(tp, reading=True) for tp in wanted
        }
        self._tell_reassigned()

    def unsubscribe(self) -> None:
        """Ask for nothing and have nothing. The group client has left the group before."""
        self._drop(list(self.partitions))
        self.kind = SubscriptionKind.NONE
        self.topics, self.pattern, self.broker_pattern = frozenset(), None, None
        self._tell_changed()
        self._tell_reassigned()

    def _set(
        self,
        kind: SubscriptionKind,
        topics: frozenset[str],
        pattern: re.Pattern[str] | None = None,
        broker_pattern: str | None = None,
    ) -> None:
        if self.kind is SubscriptionKind.ASSIGNED:
            raise ValueError("partitions were assigned: unsubscribe() before subscribe()")
        self.kind, self.topics = kind, topics
        self.pattern, self.broker_pattern = pattern, broker_pattern
        self._tell_changed()

    @property
    def uses_group(self) -> bool:
        """Whether partitions come from a group's coordinator."""
        return self.kind not in (SubscriptionKind.NONE, SubscriptionKind.ASSIGNED)

    # What the group brings; see "Hand-over" above.

    def give(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that are the consumer's now; they are not read before `begin_reading`."""
        for tp in partitions:
            if tp not in self.partitions:
                self.partitions[tp] = AssignedPartition(tp, reading=False)
        self._tell_reassigned()

    def begin_reading(self, partitions: Iterable[TopicPartition]) -> None:
        """The listener knows of them: they may be placed and fetched. Unknown ones are ignored."""
        for tp in partitions:
            if row := self.partitions.get(tp):
                row.reading = True
        self._tell_reassigned()

    def begin_revoking(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading them; what is buffered is thrown away. Positions stay, for a last commit."""
        for tp in partitions:
            if row := self.partitions.get(tp):
                row.revoking = True
                row.version += 1

    def take_away(self, partitions: Iterable[TopicPartition]) -> None:
        """They are the consumer's no longer."""
        self._drop(partitions)
        self._tell_reassigned()

    def hold_back(self, tp: TopicPartition) -> None:
        """KIP-253: place it, but don't fetch it before `let_go`."""
        self.partitions[tp].gate_closed = True

    def let_go(self, tp: TopicPartition) -> None:
        """KIP-253: what has to be read before it has been read. Unknown ones are ignored."""
        if row := self.partitions.get(tp):
            row.gate_closed = False
            self._tell_reassigned()

    # Where the consumer stands.

    def assigned(self) -> list[TopicPartition]:
        """The partitions, in the order in which they came."""
        return list(self.partitions)

    def consumed(self) -> dict[TopicPartition, Position]:
        """The positions, which are what a commit of all that was handed out takes."""
        rows = list(self.partitions.items())
        return {tp: row.position for tp, row in rows if row.position is not None and not row.reset}

    def note_committed(self, offsets: dict[TopicPartition, Position]) -> None:
        """The coordinator has taken these, or has told them."""
        for tp, position in offsets.items():
            if row := self.partitions.get(tp):
                row.committed = position

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in list(partitions):
            if row := self.partitions.pop(tp, None):
                row.version += 1
                row.revoking = True

    def _tell_changed(self) -> None:
        self.subscription_version += 1
        for call in self.changed:
            call()

    def _tell_reassigned(self) -> None:
        for call in self.reassigned:
            call()
