"""An exact copy of a log (`kstore replicate --exact`): unchanged batches with markers, producers
and leader epochs, at their offsets.

The last batch of the copy decides whether it is still a copy: the source must have the same batch,
and the batch's leader epoch must not end before the copy's end in the source.
"""

from __future__ import annotations

from typing import NamedTuple

from kstore.clients.core.replication import PartitionCopy, Piece, Plan
from kstore.record import BatchView, batches

__all__ = ["BatchHeader", "ExactCopy", "ExactPlan", "header_of", "plan_exact", "unlike"]

PIECE_BYTES = 1 << 20


class ExactPlan(NamedTuple):
    """The pieces of a fetched buffer, and the largest producer id in it."""

    plan: Plan
    largest_producer_id: int


class BatchHeader(NamedTuple):
    """The parts of a batch that compaction keeps, and those that it may change."""

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
    """Whether two batches that share an offset differ. Compaction of one side may have removed
    records of a batch, or written the time at which its tombstones or its marker may be deleted.
    """
    if source[:-3] != copy[:-3]:
        return True
    if source.has_horizon or copy.has_horizon:
        return False
    return source.records == copy.records and source.crc != copy.crc


def plan_exact(
    data: bytes | bytearray | memoryview, position: int, *, piece_bytes: int = PIECE_BYTES
) -> ExactPlan:
    """A fetched buffer from `position` on, in pieces of whole batches. Raises InvalidBatchError for
    a damaged batch.
    """
    view = memoryview(data)
    pieces: list[Piece] = []
    largest = -1
    at = start = 0  # positions in the buffer, of the batch and of the piece
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
    """The progress of one partition's exact copy."""

    log_start = -1
    """The log start offset of the copy, as far as known."""

    def cut(self, piece: Piece, position: int) -> Piece:
        """The batches that do not end below the position. A batch around the position stays whole:
        in that case the target has another batch there, and the check before sending finds it.
        """
        return plan_exact(piece.data, position, piece_bytes=len(piece.data)).plan.pieces[0]

    def refetch(self) -> None:
        """What was fetched may not be in the source any more: check the copy's end, and whether the
        source still has it.
        """
        self._forget(-1)
        self.locate()

    def _halves(self, piece: Piece) -> list[Piece]:
        return []  # a batch is never cut
