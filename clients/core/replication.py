"""Converts fetched batches of a source to batches for given offsets (KIP-391).

A batch without gaps is used unchanged, except for its producer's id and sequence, which have no
meaning in another cluster. A batch with gaps (compacted, or begun before the position) is split
into runs of consecutive offsets; a short run is not compressed. Markers, aborted records and empty
batches are omitted: their offsets stay gaps. Uncompressed batches are combined, so that a log of
many small ones does not need a request for each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kstore._fast.record.crc32c import checksum
from kstore.record import (
    BatchView,
    ControlType,
    Record,
    RecordBatchBuilder,
    batches,
    decode,
    read_control,
)
from kstore.types import TopicPartition

__all__ = ["PartitionCopy", "Piece", "Plan", "Step", "cut", "grouped", "plan_pieces"]

# The positions of these fields in a record batch of magic 2; the CRC covers everything from the
# attributes on.
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_COMPRESSION_BITS = 0x07
_NO_PRODUCER = _PRODUCER.pack(-1, -1, -1)
_SHORT_RUN = 64  # records
GROUP_BYTES = 128 << 10
"""The maximum size of a piece, unless it is one batch."""


class Piece(NamedTuple):
    """A batch for the target: records of consecutive offsets from `base_offset` on, `end_offset`
    exclusive. Or several batches, with gaps between them.
    """

    base_offset: int
    end_offset: int
    data: bytes | bytearray | memoryview
    gaps: int = 0
    """The number of offsets in between without a record."""

    @property
    def records(self) -> int:
        """The number of records."""
        return self.end_offset - self.base_offset - self.gaps


class Plan(NamedTuple):
    """The pieces of a fetched buffer in order, and the offset to fetch next."""

    pieces: list[Piece]
    next_offset: int


def plan_pieces(
    data: bytes | bytearray | memoryview,
    position: int,
    aborted: Iterable[tuple[int, int]] | None = None,
) -> Plan:
    """The pieces of a fetched buffer from `position` on.

    `aborted` are (producer id, first offset) pairs of the Fetch response: their records are
    omitted; None includes them (read_uncommitted). Raises InvalidBatchError for a damaged buffer.
    """
    pieces: list[Piece] = []
    next_offset = position
    transactions = _Transactions(aborted)
    for batch in batches(data, verify=True):
        wanted = transactions.wants(batch)
        if batch.next_offset <= position:
            continue
        next_offset = batch.next_offset
        if wanted and batch.records_count > 0:
            pieces.extend(_pieces(batch, position))
    return Plan(pieces, next_offset)


def cut(piece: Piece, position: int) -> Piece:
    """The part of a piece at or after the position, which lies within it."""
    rest: list[Piece] = []
    for batch in batches(piece.data, verify=False):
        if batch.base_offset >= position:
            rest.append(Piece(batch.base_offset, batch.next_offset, batch.data))
        elif batch.next_offset > position:
            records = decode(batch.data, verify=False, start_offset=position)
            rest += _runs(records, batch.compression)
    return _joined(rest)


def grouped(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same batches in fewer pieces: uncompressed ones are combined."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        alone = _codec(piece.data) != 0
        if group and (alone or size + len(piece.data) > GROUP_BYTES):
            yield _joined(group)
            group, size = [], 0
        if alone:
            yield piece
            continue
        group.append(piece)
        size += len(piece.data)
    if group:
        yield _joined(group)


def _joined(pieces: list[Piece]) -> Piece:
    first, last = pieces[0], pieces[-1]
    if first is last:
        return first
    records = sum(piece.records for piece in pieces)
    gaps = last.end_offset - first.base_offset - records
    data = b"".join(piece.data for piece in pieces)
    return Piece(first.base_offset, last.end_offset, data, gaps)


class _Transactions:
    """Whether each batch, in order, belongs to an aborted transaction."""

    def __init__(self, aborted: Iterable[tuple[int, int]] | None) -> None:
        self._waiting = sorted(aborted or (), key=lambda row: row[1], reverse=True)
        self._open: set[int] = set()

    def wants(self, batch: BatchView) -> bool:
        while self._waiting and self._waiting[-1][1] <= batch.last_offset:
            self._open.add(self._waiting.pop()[0])
        if not batch.is_control:
            return not (batch.is_transactional and batch.producer_id in self._open)
        if batch.producer_id in self._open:
            for record in decode(batch.data, verify=False, control=True):
                marker = read_control(record)
                if marker is not None and marker.type == ControlType.ABORT:
                    self._open.discard(batch.producer_id)
        return False


def _pieces(batch: BatchView, position: int) -> Iterator[Piece]:
    dense = batch.records_count == batch.next_offset - batch.base_offset
    # Attributes that a broker may refuse from a client: its own append time and delete horizon.
    plain = batch.timestamp_type == 0 and batch.delete_horizon_ms is None
    if dense and plain and batch.base_offset >= position:
        yield Piece(batch.base_offset, batch.next_offset, _without_producer(batch))
        return
    records = decode(batch.data, verify=False, start_offset=position)
    yield from _runs(records, batch.compression)


def _without_producer(batch: BatchView) -> memoryview | bytearray:
    if batch.producer_id < 0 and not batch.is_transactional:
        return batch.data
    data = bytearray(batch.data)
    _INT16.pack_into(data, _ATTRIBUTES_AT, batch.attributes & _COMPRESSION_BITS)
    data[_PRODUCER_AT : _PRODUCER_AT + _PRODUCER.size] = _NO_PRODUCER
    _UINT32.pack_into(data, _CRC_AT, checksum(memoryview(data)[_ATTRIBUTES_AT:]))
    return data


def _codec(data: bytes | bytearray | memoryview) -> int:
    return int(_INT16.unpack_from(data, _ATTRIBUTES_AT)[0]) & _COMPRESSION_BITS


def _runs(records: Iterable[Record], compression: int) -> Iterator[Piece]:
    """Records of ascending offsets as batches of consecutive ones."""
    builder = RecordBatchBuilder(compression=compression)
    base = expected = -1
    for record in records:
        if builder.count and record.offset != expected:
            builder.compression = compression if builder.count >= _SHORT_RUN else 0
            yield Piece(base, expected, builder.build(base))
            builder.reset()
        if not builder.count:
            base = record.offset
        builder.append(record.value, record.key, record.timestamp, record.headers)
        expected = record.offset + 1
    if builder.count:
        builder.compression = compression if builder.count >= _SHORT_RUN else 0
        yield Piece(base, expected, builder.build(base))


class Step:
    """The next step of a partition's copy."""

    LOCATE = "locate"
    """Look up the target's end offset, with a leader epoch."""
    CHECK = "check"
    """Check that the target's last record is the source's record at that offset."""
    COPY = "copy"
    """Fetch and produce."""
    STOPPED = "stopped"
    """Nothing: it failed, or its topic was deleted."""


class PartitionCopy:
    """The progress of one partition: the target's end, what is fetched, what is in flight.

    The position is the target's log end offset, as its leader reported it with `leader_epoch`.
    Every Produce has that epoch (KIP-359), so that a leader that has fewer records never gets
    records after a gap. For the same reason only one piece is in flight at a time.
    """

    source_epoch = -1
    """The source's leader epoch of fetches, where it matters."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.step = Step.LOCATE
        self.leader_epoch = -1
        self.position = -1
        self.fetch_offset = -1
        self.buffered_bytes = 0
        self.in_progress: Piece | None = None
        self.problem: Exception | None = None
        self.copied_records = 0
        self.copied_bytes = 0
        self.conceded = 0
        self.source_end = -1
        self._queue: list[Piece] = []
        self._head = 0

    # ---- the target's end ----

    def locate(self) -> None:
        """The target's end is unknown: its leader changed, or a response was lost."""
        self.in_progress = None
        if self.step != Step.STOPPED:
            self.step = Step.LOCATE

    def located(self, end_offset: int, leader_epoch: int) -> None:
        """The target's leader reported its end offset with this epoch."""
        self.leader_epoch = leader_epoch
        if self.step != Step.STOPPED:
            self.step = Step.CHECK
        if self.fetch_offset < 0 or end_offset < self.position:
            self._forget(end_offset)  # its earlier state is lost
        self._go_on_from(end_offset)

    def checked(self) -> None:
        """The target's last record is the source's."""
        if self.step == Step.CHECK:
            self.step = Step.COPY

    def stop(self, problem: Exception) -> None:
        """Fail the partition."""
        self.step = Step.STOPPED
        self.problem = problem
        self._forget(self.fetch_offset)

    def _forget(self, fetch_offset: int) -> None:
        self._queue.clear()
        self._head = 0
        self.buffered_bytes = 0
        self.fetch_offset = fetch_offset

    def _go_on_from(self, position: int) -> None:
        """Drop what the target has."""
        self.position = position
        while (head := self._first()) is not None and head.base_offset < position:
            self._drop()
            if head.end_offset > position:
                self._put_back(self.cut(head, position))
                break
        self.fetch_offset = max(self.fetch_offset, position)

    def cut(self, piece: Piece, position: int) -> Piece:
        """The part of a piece that is still to be sent."""
        return cut(piece, position)

    # ---- from the source ----

    def fetched(self, plan: Plan, source_end: int) -> None:
        """The result of a fetch from `fetch_offset`; `source_end` is the end of what can be
        read.
        """
        for piece in plan.pieces:
            self._queue.append(piece)
            self.buffered_bytes += len(piece.data)
        self.fetch_offset = max(self.fetch_offset, plan.next_offset)
        self.source_end = source_end

    def skip_to(self, offset: int) -> None:
        """The source starts only at this offset; earlier fetched data is still written."""
        self.fetch_offset = max(offset, self.fetch_offset)

    def has_copied(self, end_offset: int) -> bool:
        """Whether the target has everything that the source has below this offset."""
        return (
            self.step == Step.COPY
            and self.fetch_offset >= end_offset
            and ((head := self._first()) is None or head.base_offset >= end_offset)
        )

    # ---- to the target ----

    def next_piece(self) -> Piece | None:
        """The piece to send now, which is then in flight; None: there is none, or one is in
        flight.
        """
        if self.step != Step.COPY or self.in_progress is not None:
            return None
        self.in_progress = self._first()
        return self.in_progress

    def peek(self) -> int:
        """The size in bytes of what `next_piece` would return; 0 for nothing."""
        if self.step != Step.COPY or self.in_progress is not None:
            return 0
        head = self._first()
        return 0 if head is None else len(head.data)

    def acknowledged(self) -> None:
        """All in-sync replicas of the target have the piece that was in flight."""
        piece = self.in_progress
        self.in_progress = None
        if piece is None or piece is not self._first():
            return  # meanwhile the target's end turned out to be elsewhere
        self._drop()
        self.position = piece.end_offset
        self.copied_records += piece.records
        self.copied_bytes += len(piece.data)

    def refused(self, log_end_offset: int) -> None:
        """INVALID_PRODUCE_OFFSET: the target already has the piece, from a request whose response
        was lost or from another replicator; continue after it, once it has been checked.
        """
        piece = self.in_progress
        self.in_progress = None
        if piece is None or self.step != Step.COPY:
            return
        if log_end_offset <= piece.base_offset:
            self.step = Step.LOCATE
            return
        self.conceded += min(log_end_offset, piece.end_offset) - piece.base_offset
        self.step = Step.CHECK
        self._go_on_from(log_end_offset)

    def split(self) -> bool:
        """The piece in flight is too large for the target: halve it. Returns False if it is one
        record.
        """
        piece = self.in_progress
        self.in_progress = None
        if piece is None or piece is not self._first():
            return True
        halves = self._halves(piece)
        if halves:
            self._drop()
            self._put_back(*halves)
        return bool(halves)

    def _halves(self, piece: Piece) -> list[Piece]:
        several = [Piece(b.base_offset, b.next_offset, b.data) for b in batches(piece.data)]
        if len(several) > 1:
            middle = len(several) // 2
            return [_joined(several[:middle]), _joined(several[middle:])]
        if piece.records < 2:
            return []
        records = list(decode(piece.data, verify=False))
        middle, codec = len(records) // 2, _codec(piece.data)
        return [*_runs(records[:middle], codec), *_runs(records[middle:], codec)]

    # ---- the queue ----

    def _first(self) -> Piece | None:
        return self._queue[self._head] if self._head < len(self._queue) else None

    def _drop(self) -> None:
        self.buffered_bytes -= len(self._queue[self._head].data)
        self._head += 1
        if self._head == len(self._queue):
            self._queue.clear()
            self._head = 0

    def _put_back(self, *pieces: Piece) -> None:
        self._queue[self._head : self._head] = pieces
        self.buffered_bytes += sum(len(piece.data) for piece in pieces)
