"""Decides which batches of transactions the cleaner may remove: the data of an aborted transaction
at once, a marker when no batch of its transaction is left before it. It goes through the log's
batches in order, and reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["CleanedTransactions"]

ABORT, COMMIT, DATA = 0, 1, -2


@dataclass
class _Aborted:
    """An aborted transaction, and whether one of its batches was seen on this pass."""

    first_offset: int
    met_a_batch: bool = False


class CleanedTransactions:
    """The state of one pass. ``add`` the aborted transactions before their batches."""

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        self._coming: list[tuple[int, int]] = []
        self._seen: set[tuple[int, int]] = set()
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.add(aborted)

    def add(self, aborted: Iterable[tuple[int, int]]) -> None:
        """Add aborted transactions, as (producer id, first offset)."""
        for producer_id, first_offset in aborted:
            if (first_offset, producer_id) not in self._seen:
                self._seen.add((first_offset, producer_id))
                self._coming.append((first_offset, producer_id))
        self._coming.sort()

    def may_discard(self, producer_id: int, last_offset: int, control_type: int) -> bool:
        """Whether the batch with this last offset has nothing that a reader may see.

        Called for every transactional batch and every control batch, in order. ``control_type`` is
        0 for an abort marker, 1 for a commit marker, -1 for a marker whose record was removed, -2
        for data.
        """
        self._begin_up_to(last_offset)
        if control_type == DATA:
            aborted = self._aborted.get(producer_id)
            if aborted is None:
                self._committed.add(producer_id)
                return False
            aborted.met_a_batch = True
            return True
        if control_type == ABORT:
            ended = self._aborted.pop(producer_id, None)
            return ended is None or not ended.met_a_batch
        if control_type == COMMIT:
            had_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_batches
        # An empty marker was cleaned before. Markers of other kinds stay.
        return control_type == -1

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            first_offset, producer_id = self._coming.pop(0)
            self._aborted.setdefault(producer_id, _Aborted(first_offset))
