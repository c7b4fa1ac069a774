"""Idempotence: the producer's id and epoch, and the sequence numbers of each partition's batches.

Pure. A batch keeps its numbers over retries until it is known that the broker does not have it
(KIP-98); after an unexplained gap, a new epoch begins (KIP-360).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from kstore._fast.clients.accumulator import PartitionQueue
from kstore._fast.clients.producer_batch import ProducerBatch
from kstore.types import TopicPartition

__all__ = ["PartitionSends", "ProducerState", "add_to_sequence"]

MAX_EPOCH = 0x7FFF - 1
"""The coordinator uses the very last epoch to fence."""
MAX_SEQUENCE = 0x7FFFFFFF


def add_to_sequence(sequence: int, count: int) -> int:
    """The sequence number after count more (or fewer) records: 31 bits, then 0 again."""
    return (sequence + count) & MAX_SEQUENCE


@dataclass(slots=True)
class ProducerState:
    """The current id and epoch; -1: none yet."""

    idempotent: bool
    transactional: bool = False
    producer_id: int = -1
    epoch: int = -1

    @property
    def needs_id(self) -> bool:
        """Whether InitProducerId must come first."""
        return self.idempotent and self.producer_id < 0

    def take(self, producer_id: int, epoch: int) -> None:
        """A new id or epoch, from InitProducerId or from the end of a transaction."""
        self.producer_id, self.epoch = producer_id, epoch

    def bump(self) -> None:
        """Begin the next epoch without a request, which only the idempotent producer may do
        (KIP-360); after the last epoch a new id is needed.
        """
        if self.epoch >= MAX_EPOCH:
            self.producer_id = self.epoch = -1
        else:
            self.epoch += 1


@dataclass(slots=True, eq=False)
class PartitionSends:
    """A partition's batches between the queue and the log, and their numbers.

    in_flight and retries are in the order of their records; retries are sent before the queue, one
    batch at a time.
    """

    queue: PartitionQueue
    tp: TopicPartition
    producer_id: int = -1
    epoch: int = -1
    next_sequence: int = 0
    in_flight: list[ProducerBatch] = field(default_factory=list)
    retries: list[ProducerBatch] = field(default_factory=list)
    unresolved: bool = False
    """A failed batch may be in the log."""
    served: int = 0
    """When it was last sent to, as a counter: the one that has waited longest comes first."""
    lost: bool = False
    """The broker does not know the sequence: it must start again."""
    known: bool = False
    """The broker knows the producer id, so it accepts no gap. Until then one batch is in flight: a
    broker accepts any first sequence number, so a batch could overtake one that failed.
    """

    def retry(self, batch: ProducerBatch) -> None:
        """Put a batch back to its place in the order."""
        at = bisect_left(self.retries, batch.number, key=lambda other: other.number)
        self.retries.insert(at, batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no older batch is outstanding."""
        older = [other for other in self.in_flight + self.retries if other.number < batch.number]
        return not older

    def settle_numbers(self, state: ProducerState) -> bool:
        """Called before a batch is taken; False: wait for responses or for a new producer id."""
        if not state.idempotent:
            return True
        if self.in_flight:
            return not self.lost and self._is_current(state)
        self.lost |= self.unresolved and not self.retries
        if self.lost and self._is_current(state) and self.producer_id >= 0:
            if state.transactional:
                return True  # its transaction is lost, and the next one has another epoch
            state.bump()
            if state.needs_id:
                return False
        if self.lost or (not self.retries and not self._is_current(state)):
            self._begin_anew(state)
        return True

    def _is_current(self, state: ProducerState) -> bool:
        return (self.producer_id, self.epoch) == (state.producer_id, state.epoch)

    def _begin_anew(self, state: ProducerState) -> None:
        self.known = self.known and self.producer_id == state.producer_id
        self.producer_id, self.epoch = state.producer_id, state.epoch
        self.lost = self.unresolved = False
        self.next_sequence = 0
        for batch in self.retries:
            batch.base_sequence = self.next_sequence
            batch.producer_id, batch.producer_epoch = self.producer_id, self.epoch
            batch.renumbered = True
            self.next_sequence = add_to_sequence(self.next_sequence, batch.count)

    def number(self, batch: ProducerBatch, state: ProducerState) -> None:
        """Give a batch that was never sent the next sequence numbers, and seal it."""
        if not state.idempotent:
            batch.pack(-1, -1, -1, False)
            return
        batch.pack(self.producer_id, self.epoch, self.next_sequence, state.transactional)
        self.next_sequence = add_to_sequence(self.next_sequence, batch.count)

    def give_back_numbers(self, batch: ProducerBatch) -> None:
        """A batch has failed: if it is certainly not in the log, its numbers are free, and the
        batches behind it move up, unless one of them may be in the log with its numbers.
        """
        if batch.base_sequence < 0:
            return
        behind = [other for other in self.in_flight + self.retries if _follows(other, batch)]
        if batch.maybe_written or any(
            other.maybe_written or other in self.in_flight for other in behind
        ):
            self.unresolved = True
            return
        for other in behind:
            other.base_sequence = add_to_sequence(other.base_sequence, -batch.count)
            other.renumbered = True
        self.next_sequence = add_to_sequence(self.next_sequence, -batch.count)


def _follows(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether a batch comes after another one; parts of one batch have the same number."""
    if batch.number != other.number:
        return bool(batch.number > other.number)
    return 0 < add_to_sequence(batch.base_sequence, -other.base_sequence) <= MAX_SEQUENCE // 2
