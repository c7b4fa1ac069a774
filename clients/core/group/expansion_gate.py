"""KIP-253: a new partition of a topic is not read before the group has read the records that the
earlier partitions had when it was added.

A state machine: the shell (io/gate) reports new partitions and looks up what it needs; the group's
heartbeats exchange positions between members. Steps for each partition that is held back: its prior
partitions and their leader epochs (LeaderEpochForPartition); the end offsets of those epochs
(OffsetForLeaderEpoch), which are the thresholds; then the group's positions, until all have reached
their thresholds. A partition is held back only if nobody has read from it yet: it has no committed
offset, or one at or below its log start offset.

A position is the one before the user's last poll began: the records of the last poll may still be
in processing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kstore.protocol.groups.classic import NeedPositionTopic, PositionPartition, PositionTopic
from kstore.types import TopicPartition

__all__ = ["ExpansionGate", "PriorEpoch", "need_rows", "position_rows"]


P = TypeVar("P")


class PriorEpoch(NamedTuple):
    """A prior partition, and its last leader epoch before the expansion."""

    partition: TopicPartition
    leader_epoch: int


class _Gate:
    """The state of a partition that is held back."""

    __slots__ = ("known", "priors", "thresholds")

    def __init__(self) -> None:
        self.priors: frozenset[PriorEpoch] | None = None
        self.thresholds: dict[TopicPartition, int] = {}
        self.known: dict[TopicPartition, int] = {}

    @property
    def waiting_for(self) -> list[TopicPartition]:
        """The prior partitions that are not known to have been read."""
        known = self.known
        return [tp for tp, end in self.thresholds.items() if known.get(tp, 0) < end]

    @property
    def is_open(self) -> bool:
        if self.priors is None or len(self.thresholds) < len(self.priors):
            return False
        return not self.waiting_for


class ExpansionGate:
    """The gates of one consumer, and their fields in heartbeats."""

    def __init__(self) -> None:
        self._gates: dict[TopicPartition, _Gate] = {}
        self._asked: frozenset[TopicPartition] = frozenset()
        """The partitions whose positions a member of the group needs."""

    @property
    def closed(self) -> frozenset[TopicPartition]:
        """The partitions that are held back."""
        return frozenset(self._gates)

    # Assigned and revoked partitions.

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions. They may not be read until it is known that they may."""
        for tp in partitions:
            self._gates.setdefault(tp, _Gate())

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that were revoked, or that need no gate."""
        for tp in partitions:
            self._gates.pop(tp, None)

    # Lookups by the shell.

    def without_priors(self) -> frozenset[TopicPartition]:
        """The partitions to look up with LeaderEpochForPartition."""
        return frozenset(tp for tp, gate in self._gates.items() if gate.priors is None)

    def priors_known(self, tp: TopicPartition, priors: Iterable[PriorEpoch]) -> None:
        """The answer. Without prior partitions, the partition is as old as its topic, and its gate
        opens.
        """
        if gate := self._gates.get(tp):
            gate.priors = frozenset(priors)

    def without_thresholds(self) -> frozenset[PriorEpoch]:
        """The partitions to look up with OffsetForLeaderEpoch."""
        return frozenset(
            prior
            for gate in self._gates.values()
            for prior in gate.priors or ()
            if prior.partition not in gate.thresholds
        )

    def threshold_known(self, prior: PriorEpoch, end_offset: int) -> None:
        """The answer: the offset after the last record of the epoch."""
        for gate in self._gates.values():
            if gate.priors is not None and prior in gate.priors:
                gate.thresholds[prior.partition] = end_offset

    # Positions.

    def read_up_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """Positions of this consumer, log start offsets, or positions from a heartbeat: everything
        below them has been read or deleted.
        """
        for gate in self._gates.values():
            for tp in gate.thresholds:
                if (position := positions.get(tp, -1)) > gate.known.get(tp, 0):
                    gate.known[tp] = position

    def open_gates(self) -> frozenset[TopicPartition]:
        """The partitions that may be read now; removes their gates."""
        found = frozenset(tp for tp, gate in self._gates.items() if gate.is_open)
        self.drop(found)
        return found

    def needed(self) -> frozenset[TopicPartition]:
        """The partitions whose positions this consumer needs, for its heartbeats."""
        return frozenset(tp for gate in self._gates.values() for tp in gate.waiting_for)

    def requested(self, partitions: Collection[TopicPartition]) -> bool:
        """The partitions whose positions the coordinator asks for; returns True if there are new
        ones.
        """
        before, self._asked = self._asked, frozenset(partitions)
        return bool(self._asked - before)

    def reported(self, positions: Mapping[TopicPartition, P]) -> dict[TopicPartition, P]:
        """The positions of this consumer that were asked for."""
        return {tp: positions[tp] for tp in self._asked if tp in positions}

    @property
    def is_asked(self) -> bool:
        """Whether a member waits for positions."""
        return bool(self._asked)


def need_rows(partitions: Iterable[TopicPartition]) -> list[NeedPositionTopic]:
    """The form in a heartbeat."""
    rows: dict[str, NeedPositionTopic] = {}
    for topic, index in sorted(partitions):
        row = rows.setdefault(topic, NeedPositionTopic(topic=topic, partitions=[]))
        row.partitions.append(index)
    return list(rows.values())


def position_rows(positions: Mapping[TopicPartition, tuple[int, int]]) -> list[PositionTopic]:
    """The form in a heartbeat: offsets, with their partition epochs."""
    rows: dict[str, PositionTopic] = {}
    for (topic, index), (offset, epoch) in sorted(positions.items()):
        row = rows.setdefault(topic, PositionTopic(topic=topic, partitions=[]))
        row.partitions.append(
            PositionPartition(partition=index, position=offset, partition_epoch=epoch)
        )
    return list(rows.values())
