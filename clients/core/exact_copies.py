"""An exact copy of a log (`kstore replicate --exact`): its batches as they are, with markers,
producers and leader epochs, at their offsets.

Whether the copy is still one is decided by the last batch that it has: the source has the same one,
and did not end that batch's leader epoch before the copy's end.
"""

from __future__ import annotations

from typing import NamedTuple

from kstore.clients.core.replication import PartitionCopy, Piece, Plan
from kstore.record import BatchView, batches

__all__ = ["BatchHeader", "ExactCopy", "ExactPlan", "header_of", "plan_exact", "unlike"]

PIECE_BYTES = 1 << 20


class ExactPlan(NamedTuple):
    """What came of one fetched buffer, and the largest producer id in it."""

    plan: Plan
    largest_producer_id: int


class BatchHeader(NamedTuple):
    """What compaction leaves of a batch, and what it may change."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    has_horizon: bool
    records: int
    crc: int


def header_of(batch: BatchView) -> BatchHeader:
    """The header of a batch."""
    return BatchHeader(
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.delete_horizon_ms is not None,
        batch.records_count,
        batch.crc,
    )


def unlike(source: BatchHeader, copy: BatchHeader) -> bool:
    """Whether these, which have an offset in common, are two batches. Compaction of one side may
    have taken records out of a batch, or written into it when its tombstones or its marker may go.
    """
    if source[:-3] != copy[:-3]:
        return True
    if source.has_horizon or copy.has_horizon:
        return False
    return source.records == copy.records and source.crc != copy.crc


def plan_exact(
    data: bytes | bytearray | memoryview, position: int, *, piece_bytes: int = PIECE_BYTES
) -> ExactPlan:
    """A fetched buffer from `position` on, in pieces of whole batches. InvalidBatchError for one
    that is damaged.
    """
    view = memoryview(data)
    pieces: list[Piece] = []
    largest = -1
    at = start = 0  # in the buffer, of the batch and of the piece
    base = end = -1
    records = 0
    for batch in batches(data, verify=True):
        size = batch.size_bytes
        if batch.next_offset <= position:
            at += size
            start = at
            continue
        if base >= 0 and at + size - start > piece_bytes:
            pieces.append(Piece(base, end, view[start:at], end - base - records))
            base, start, records = -1, at, 0
        if base < 0:
            base = batch.base_offset
        largest = max(largest, batch.producer_id)
        records += batch.records_count
        end = batch.next_offset
        at += size
    if base >= 0:
        pieces.append(Piece(base, end, view[start:at], end - base - records))
    return ExactPlan(Plan(pieces, max(end, position)), largest)


class ExactCopy(PartitionCopy):
    """One partition on its way to be the same log in the target."""

    log_start = -1
    """What of the copy is known to be deleted, as in the source."""

    def cut(self, piece: Piece, position: int) -> Piece:
        """The batches that are not below the position. One that the position lies in stays whole:
        the target has another one there then, which is found before it is sent.
        """
        return plan_exact(piece.data, position, piece_bytes=len(piece.data)).plan.pieces[0]

    def refetch(self) -> None:
        """What was fetched may not be the source's any more: look where the copy stands, and
        whether the source still has that.
        """
        self._forget(-1)
        self.locate()

    def _halves(self, piece: Piece) -> list[Piece]:
        return []  # a batch stays as it is
