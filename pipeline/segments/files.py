"""Reads byte ranges of segment files into columns, in executors, without a broker. If a file is
damaged, missing or rewritten, the error names the file, the byte and the offset.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kstore._fast.record.batch_view import find_disorder
from kstore._fast.record.columns import ColumnReader
from kstore.log.segments.damage import Bounds, Damage, survey
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.ranges import Decoding, OffsetRange
from kstore.record import InvalidBatchError, batches

__all__ = ["SegmentRange", "SegmentSlice", "read_segments"]

PIECE_BYTES = 1 << 20
"""The number of bytes to read at once: its columns stay in the CPU cache until they are sent."""
_PREFIX_BYTES = 12  # of a batch: base offset and length
AGAIN = "Run the query again with a new plan"


@dataclass(frozen=True)
class SegmentSlice:
    """Bytes ``start`` to below ``end`` of a segment file, whole batches. ``size_bytes`` is the
    file's planned size; -1 for the active segment, which may grow.
    """

    path: str
    start: int
    end: int
    first_offset: int
    """The base offset of its first batch; in a segment's first slice it may be larger."""
    size_bytes: int = -1
    next_offset: int = 2**63 - 1
    """The offsets of its batches are below it."""


@dataclass(frozen=True)
class SegmentRange(OffsetRange):
    """An offset range, and the slices with its records."""

    slices: tuple[SegmentSlice, ...] = ()
    aborted: tuple[tuple[int, int], ...] | None = field(default=None, repr=False)
    """(producer id, first offset) of aborted transactions in the range, for read_committed."""


def read_segments(
    wanted: SegmentRange, decoding: Decoding, *, verify: bool, fail_on_data_loss: bool
) -> Iterator[Any]:
    """The records of a range in the form of ``decoding``, in order. Raises PipelineError."""
    return _SegmentReader(wanted, decoding, verify, fail_on_data_loss).batches()


class _SegmentReader:
    """A range that is being read."""

    def __init__(self, wanted: SegmentRange, decoding: Decoding, verify: bool, fails: bool) -> None:
        self._range = wanted
        self._decoder = decoding(wanted, verify)
        self._fails = fails
        self._memory = bytearray(PIECE_BYTES)
        self._before: ColumnReader | None = None

    def batches(self) -> Iterator[Any]:
        """See read_segments."""
        for part in self._range.slices:
            try:
                descriptor = os.open(part.path, os.O_RDONLY)
            except OSError as error:
                self._lose(f"segment {part.path} can't be read: {error.strerror}", part, _GONE)
                continue
            try:
                self._check_size(part, os.fstat(descriptor).st_size)
                for stretch in self._ordered(part, descriptor):
                    yield from self._slice(stretch, descriptor)
            finally:
                os.close(descriptor)

    def _ordered(self, part: SegmentSlice, descriptor: int) -> Iterator[SegmentSlice]:
        """The bytes of a slice, without batches whose offsets are not between those of their
        neighbours: checksums do not cover offsets.
        """
        position, expected = part.start, part.first_offset
        damages: list[Damage] = []
        while position < part.end:
            piece = self._piece(descriptor, position, part.end)
            wrong, expected, size = find_disorder(piece, least=expected, limit=part.next_offset)
            if wrong >= 0:

                def read(count: int, at: int) -> bytes:
                    return os.pread(descriptor, count, at)

                bounds = Bounds(part.first_offset, part.next_offset)
                damages = survey(part.path, read, part.start, part.end, bounds)
                break
            if not size:
                break  # what is not a batch is reported where it is read
            position += size
        left = part
        for damage in damages:
            if damage.is_whole:
                yield replace(left, end=damage.position)
                self._lose(f"{damage}", part, _DAMAGED, damage.first_offset)
                left = replace(left, start=damage.end_position, first_offset=damage.next_offset)
        yield left

    def _slice(self, part: SegmentSlice, descriptor: int) -> Iterator[Any]:
        """The records of one slice."""
        position = part.start
        while position < part.end:
            piece = self._piece(descriptor, position, part.end)
            if position == part.start:
                self._check_start(part, piece)
            reader = self._reader(piece)
            try:
                yield from self._decoder.drained(reader)
            except (InvalidBatchError, OverflowError) as error:
                position = self._after_damage(part, piece, position, reader, error)
                continue
            self._before = reader
            if reader.position == 0:
                if _batch_bytes(piece) > len(piece):
                    what = f"segment {part.path} ends inside a batch at byte {position}"
                    self._lose(what, part, _DAMAGED, _base_offset(piece))
                return  # otherwise it is after the range
            position += reader.position

    def _reader(self, piece: memoryview) -> ColumnReader:
        wanted = self._range
        aborted = wanted.aborted if self._before is None else None
        return self._decoder.reader(piece, wanted.start, wanted.end, aborted, after=self._before)

    def _piece(self, descriptor: int, position: int, end: int) -> memoryview:
        """About a megabyte, or a whole batch that is larger."""
        size = self._fill(descriptor, position, min(PIECE_BYTES, end - position))
        needed = _batch_bytes(memoryview(self._memory)[:size])
        if size < needed <= end - position:
            if needed > len(self._memory):
                self._memory = bytearray(needed)
            size = self._fill(descriptor, position, needed)
        return memoryview(self._memory)[:size]

    def _fill(self, descriptor: int, position: int, size: int) -> int:
        """Read this number of bytes; fewer only at the end of the file."""
        filled = 0
        while filled < size:
            view = memoryview(self._memory)[filled:size]
            count = os.preadv(descriptor, [view], position + filled)
            if not count:
                break
            filled += count
        return filled

    # ---- errors ----

    def _check_size(self, part: SegmentSlice, size_bytes: int) -> None:
        """A sealed segment does not change, except that compaction rewrites it."""
        if part.size_bytes not in (-1, size_bytes) or size_bytes < part.end:
            what = f"segment {part.path} has {size_bytes} bytes"
            expected = f"{part.size_bytes}" if part.size_bytes >= 0 else f"at least {part.end}"
            raise self._problem(
                f"{what}, and had {expected} when the query was planned: it was compacted or cut",
                part.first_offset,
                AGAIN,
            )

    def _check_start(self, part: SegmentSlice, piece: memoryview) -> None:
        """Check that the batch that the index reported begins here."""
        found = _base_offset(piece)
        if found != part.first_offset and (part.start or found < part.first_offset):
            raise self._problem(
                f"at byte {part.start} of segment {part.path} begins a batch of offset {found}, and"
                f" the index has {part.first_offset}: the segment was compacted, or is damaged",
                part.first_offset,
                f"{AGAIN}; if that does not help, `kstore log verify` shows what is wrong",
            )

    def _after_damage(
        self,
        part: SegmentSlice,
        piece: memoryview,
        position: int,
        reader: ColumnReader,
        error: InvalidBatchError | OverflowError,
    ) -> int:
        """The position after a batch that can't be read, if data may be lost."""
        at = error.position if isinstance(error, InvalidBatchError) else 0
        place = position + at
        offset = _base_offset(piece[at:])
        if isinstance(error, OverflowError):
            raise self._problem(f"{error} (segment {part.path})", offset, _COLUMN) from error
        what = f"segment {part.path} is damaged at byte {place}: {error}"
        self._lose(what, part, _DAMAGED, offset, error)
        if error.status != "BAD_CRC":
            return part.end  # nothing shows where the next batch begins
        return place + next(batches(piece, position=at)).size_bytes

    def _lose(
        self,
        what: str,
        part: SegmentSlice,
        remedy: str,
        offset: int = -1,
        cause: Exception | None = None,
    ) -> None:
        """Raise an error, or print a message on stderr if data may be lost."""
        is_likely = self._range.start <= offset < self._range.end
        named = offset if is_likely else max(part.first_offset, self._range.start)
        problem = self._problem(what, named, remedy)
        if self._fails:
            raise problem from cause
        print(f"kstore: {problem} Continuing after it.", file=sys.stderr)

    def _problem(self, problem: str, offset: int, remedy: str) -> PipelineError:
        wanted = self._range
        return PipelineError(
            problem, topic=wanted.topic, partition=wanted.partition, offset=offset, remedy=remedy
        )


_GONE = (
    "The log dir must have the same path on all executors; if retention has deleted the segment,"
    " run the query again, or set failOnDataLoss to false to continue without it"
)
_DAMAGED = (
    "`kstore log verify` shows what is wrong; restore the segment from another replica or an"
    " archive, or set failOnDataLoss to false to skip what can't be read"
)
_COLUMN = "Select the columns that you need, without timestamp, with .schema(..)"


def _base_offset(piece: memoryview) -> int:
    return int.from_bytes(piece[:8], "big", signed=True)


def _batch_bytes(piece: memoryview) -> int:
    """The batch's length from its header."""
    if len(piece) < _PREFIX_BYTES:
        return _PREFIX_BYTES
    return int.from_bytes(piece[8:_PREFIX_BYTES], "big", signed=True) + _PREFIX_BYTES
