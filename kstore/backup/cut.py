"""The end of each log in a backup, so that all logs are consistent. Pure: decisions about values,
no files.

The ends of logs are noted one after the other: first __transaction_state, then __consumer_offsets,
then all others. A transaction is in the backup if its decision is in the first. So other logs are
cut before the first marker of a later decision, and before a transaction that the coordinator did
not know yet. Everything before a cut existed when __transaction_state was noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.types import TopicPartition

__all__ = ["TailBatch", "Transactions", "consistent_end", "end_of_commits"]

ONGOING, PREPARE_COMMIT, PREPARE_ABORT = 1, 2, 3
OPEN = {ONGOING, PREPARE_COMMIT, PREPARE_ABORT}
PREPARED = {PREPARE_COMMIT, PREPARE_ABORT}
TV_2 = 2


class TailBatch(NamedTuple):
    """A batch near the end of a log."""

    base_offset: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool
    timestamp: int
    commits: tuple[tuple[TopicPartition, int], ...] = ()
    """For __consumer_offsets: the offsets that its records commit."""


class _State(NamedTuple):
    epoch: int
    status: int
    partitions: frozenset[TopicPartition]
    updated_ms: int


@dataclass
class Transactions:
    """The state of producers in __transaction_state, record by record."""

    latest: dict[int, _State] = field(default_factory=dict)
    decided: set[tuple[int, int]] = field(default_factory=set)
    """Producers and epochs with a decided transaction (transaction.version 2)."""

    def take(
        self,
        producer_id: int,
        epoch: int,
        status: int,
        partitions: Iterable[TopicPartition],
        updated_ms: int,
        client_version: int,
    ) -> None:
        """The next record."""
        self.latest[producer_id] = _State(epoch, status, frozenset(partitions), updated_ms)
        if status in PREPARED and client_version >= TV_2:
            self.decided.add((producer_id, epoch))

    def explain(self, marker: TailBatch, seen: set[int]) -> bool:
        """Whether a marker's decision is known. ``seen``: the producers with a pending marker that
        this log already contained.
        """
        state = self.latest.get(marker.producer_id)
        if state is None or marker.producer_epoch > state.epoch:
            return False
        if marker.producer_epoch < state.epoch:
            return True
        if (marker.producer_id, marker.producer_epoch) in self.decided:
            return True
        if state.status in PREPARED and marker.timestamp >= state.updated_ms:
            is_first = marker.producer_id not in seen
            seen.add(marker.producer_id)
            return is_first
        return marker.timestamp <= state.updated_ms

    def will_end(self, producer_id: int, key: TopicPartition) -> bool:
        """Whether the coordinator, started from the known state, would end this producer's open
        transaction in a partition.
        """
        state = self.latest.get(producer_id)
        return state is not None and state.status in OPEN and key in state.partitions


def consistent_end(
    key: TopicPartition, end: int, tail: Iterable[TailBatch], transactions: Transactions
) -> int:
    """The cut of a log: at ``end``, or before what the transactions do not explain."""
    begun: dict[int, int] = {}
    seen: set[int] = set()
    for batch in tail:
        if batch.base_offset >= end:
            break
        if not batch.is_transactional:
            continue
        if not batch.is_control:
            begun.setdefault(batch.producer_id, batch.base_offset)
        elif transactions.explain(batch, seen):
            begun.pop(batch.producer_id, None)
        else:
            end = batch.base_offset
            break
    unknown = [
        first for producer_id, first in begun.items() if not transactions.will_end(producer_id, key)
    ]
    return min([end, *unknown])


def end_of_commits(end: int, tail: Iterable[TailBatch], ends: Mapping[TopicPartition, int]) -> int:
    """The cut of a partition of __consumer_offsets: before the first commit beyond the end of its
    log.
    """
    for batch in tail:
        if batch.base_offset >= end:
            break
        if any(offset > ends.get(key, offset) for key, offset in batch.commits):
            return batch.base_offset
    return end
