"""KIP-253: a partition that was added to a topic is not read before the group has read what the
partitions before it held when it was added.

A state machine: the shell (io/gate) tells it of new partitions and asks what it wants to know; the
group's heartbeats carry positions between members. For each partition that is held back, in turn:
its prior partitions and their leader epochs (LeaderEpochForPartition); where those epochs ended
(OffsetForLeaderEpoch), which is the threshold; then the group's positions, until all have reached
their thresholds. Only a partition that nobody has read from yet is held back: without a committed
offset, or with one at or below its log start offset.

A position is what the user had been given before its last poll began: what the last poll returned
may still be being worked on.
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
    """What is known of one partition that is held back."""

    __slots__ = ("known", "priors", "thresholds")

    def __init__(self) -> None:
        self.priors: frozenset[PriorEpoch] | None = None
        self.thresholds: dict[TopicPartition, int] = {}
        self.known: dict[TopicPartition, int] = {}

    @property
    def waiting_for(self) -> list[TopicPartition]:
        """The priors that are not known to have been read."""
        known = self.known
        return [tp for tp, end in self.thresholds.items() if known.get(tp, 0) < end]

    @property
    def is_open(self) -> bool:
        if self.priors is None or len(self.thresholds) < len(self.priors):
            return False
        return not self.waiting_for


class ExpansionGate:
    """The gates of one consumer, and what it says and hears in heartbeats."""

    def __init__(self) -> None:
        self._gates: dict[TopicPartition, _Gate] = {}
        self._asked: frozenset[TopicPartition] = frozenset()
        """The partitions whose positions somebody in the group asks for."""

    @property
    def closed(self) -> frozenset[TopicPartition]:
        """The partitions that are held back."""
        return frozenset(self._gates)

    # Partitions come and go.

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that may not be read before it is known that they may."""
        for tp in partitions:
            self._gates.setdefault(tp, _Gate())

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that are this consumer's no longer, or need no gate."""
        for tp in partitions:
            self._gates.pop(tp, None)

    # What the shell looks up.

    def without_priors(self) -> frozenset[TopicPartition]:
        """Those to ask LeaderEpochForPartition about."""
        return frozenset(tp for tp, gate in self._gates.items() if gate.priors is None)

    def priors_known(self, tp: TopicPartition, priors: Iterable[PriorEpoch]) -> None:
        """The answer; no priors: the partition is as old as its topic, and its gate opens."""
        if gate := self._gates.get(tp):
            gate.priors = frozenset(priors)

    def without_thresholds(self) -> frozenset[PriorEpoch]:
        """Those to ask OffsetForLeaderEpoch about."""
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
        """Positions of this consumer, log start offsets, or what a heartbeat told: below them
        nothing is left to be read.
        """
        for gate in self._gates.values():
            for tp in gate.thresholds:
                if (position := positions.get(tp, -1)) > gate.known.get(tp, 0):
                    gate.known[tp] = position

    def open_gates(self) -> frozenset[TopicPartition]:
        """The partitions that may be read now; their gates are gone."""
        found = frozenset(tp for tp, gate in self._gates.items() if gate.is_open)
        self.drop(found)
        return found

    def needed(self) -> frozenset[TopicPartition]:
        """The partitions whose positions this consumer waits for, as its heartbeats say."""
        return frozenset(tp for gate in self._gates.values() for tp in gate.waiting_for)

    def asked(self, partitions: Collection[TopicPartition]) -> bool:
        """What the coordinator asks for from now on; True if something is new in it."""
        before, self._asked = self._asked, frozenset(partitions)
        return bool(self._asked - before)

    def reported(self, positions: Mapping[TopicPartition, P]) -> dict[TopicPartition, P]:
        """Of this consumer's positions those that were asked for."""
        return {tp: positions[tp] for tp in self._asked if tp in positions}

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for positions."""
        return bool(self._asked)


def need_rows(partitions: Iterable[TopicPartition]) -> list[NeedPositionTopic]:
    """As a heartbeat carries it."""
    rows: dict[str, NeedPositionTopic] = {}
    for topic, index in sorted(partitions):
        row = rows.setdefault(topic, NeedPositionTopic(topic=topic, partitions=[]))
        row.partitions.append(index)
    return list(rows.values())


def position_rows(positions: Mapping[TopicPartition, tuple[int, int]]) -> list[PositionTopic]:
    """As a heartbeat carries it: offsets, with their partition epochs."""
    rows: dict[str, PositionTopic] = {}
    for (topic, index), (offset, epoch) in sorted(positions.items()):
        row = rows.setdefault(topic, PositionTopic(topic=topic, partitions=[]))
        row.partitions.append(
            PositionPartition(partition=index, position=offset, partition_epoch=epoch)
        )
    return list(rows.values())
