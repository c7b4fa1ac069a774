"""Finds an offset by time: first the segment, then the range between two index entries, then the
batches and records in it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore._fast.log.log_segment import LogSegment
from kstore._fast.record.unpack import claim, find_by_time
from kstore.log.recovery import segment_index

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog
    from kstore.record import BatchView

__all__ = [
    "Index", "Look", "Read", "Search", "largest_ms", "largest_timestamp", "offset_for_timestamp",
    "search", "search_steps",
]  # fmt: skip

_READ_BYTES = 128 * 1024
BATCH_HEADER_SIZE = 61
LARGE_BYTES = 1 << 20
"""A limit on decompressed records: larger batches are searched through a window, in a broker by a
thread.
"""
GZIP, GZIP_RATIO = 1, 1032


class Look(NamedTuple):
    """A large compressed batch that may contain the record of a search: `find` looks into it, in
    any thread. If it has none, the search continues after it.
    """

    batch: bytes
    timestamp_ms: int
    start_offset: int
    next_offset: int

    def find(self) -> tuple[int, int] | None:
        """The record: (offset, its timestamp)."""
        return find_by_time(self.batch, self.timestamp_ms, self.start_offset)


class Index(NamedTuple):
    """A step of a search: the result of ``find``, which loads a segment's index into memory."""

    find: Callable[[], int]


class Read(NamedTuple):
    """A step of a search: the result of the log's read with these arguments."""

    offset: int
    end_offset: int
    max_bytes: int


Search = Generator[Index | Read, Any, tuple[int, int] | Look | None]
"""A search that leaves to its caller whatever may have to wait for the disk."""


def offset_for_timestamp(log: LocalLog, timestamp_ms: int) -> tuple[int, int] | None:
    """The first record, in the order of offsets, at or after a time: (offset, its timestamp)."""
    found = search(log, timestamp_ms)
    while isinstance(found, Look):
        found = found.find() or search(log, timestamp_ms, found.next_offset)
    return found


def search(log: LocalLog, timestamp_ms: int, from_offset: int = 0) -> tuple[int, int] | Look | None:
    """As `offset_for_timestamp`, from an offset on, or a batch to look into."""
    steps = search_steps(log, timestamp_ms, from_offset)
    given: Any = None
    while True:
        try:
            step = steps.send(given)
        except StopIteration as done:
            found: tuple[int, int] | Look | None = done.value
            return found
        given = step.find() if isinstance(step, Index) else log.core.read(*step)


def search_steps(log: LocalLog, timestamp_ms: int, from_offset: int = 0) -> Search:
    """`search`, step by step: each step is sent its result."""
    core = log.core
    start = max(from_offset, core.log_start_offset)
    for segment in tuple(core.segments):
        if segment.next_offset <= start:
            continue
        if segment.max_timestamp >= timestamp_ms:
            found = yield from _find(log, segment, timestamp_ms, start)
            if found is not None:
                return found
    return None


def largest_timestamp(log: LocalLog) -> tuple[int, int] | None:
    """The first record with the largest timestamp: (offset, timestamp)."""
    largest = largest_ms(log)
    return offset_for_timestamp(log, largest) if largest >= 0 else None


def largest_ms(log: LocalLog) -> int:
    """The largest timestamp of visible records; below 0 if there are none."""
    largest = max((segment.max_timestamp for segment in log.core.segments), default=-1)
    if log.core.shows_durable and not log.read_only:
        largest = min(largest, log.disk.timestamp)  # not of invisible records
    return largest


def _find(log: LocalLog, segment: LogSegment, timestamp_ms: int, start: int) -> Search:
    from kstore.record import batches, decode

    core = log.core
    start = max(segment.base_offset, start)
    offset = segment.offset_before_timestamp(timestamp_ms)
    if offset < 0:
        offset = yield Index(lambda: _indexed_offset(log, segment, timestamp_ms))
    offset = max(offset, start)
    end = min(segment.next_offset, core.high_watermark)
    while offset < end:
        data, next_offset = yield Read(offset, end, _READ_BYTES)
        for batch in batches(data):
            if batch.max_timestamp < timestamp_ms or batch.next_offset <= start:
                continue
            if _is_large(batch):
                return Look(bytes(batch.data), timestamp_ms, start, batch.next_offset)
            for record in decode(batch.data, verify=False, start_offset=start, control=True):
                if record.timestamp >= timestamp_ms:
                    return record.offset, record.timestamp
        offset = next_offset
    return None


def _is_large(batch: BatchView) -> bool:
    """Whether its records may take more memory and time than acceptable here."""
    size = batch.size_bytes - BATCH_HEADER_SIZE
    if not batch.compression:
        return False
    if batch.compression == GZIP:  # its size field is only that of its last member
        return size * GZIP_RATIO > LARGE_BYTES
    return claim(batch.compression, batch.data[BATCH_HEADER_SIZE:]) > LARGE_BYTES


def _indexed_offset(log: LocalLog, segment: LogSegment, timestamp_ms: int) -> int:
    """An offset of the segment before which no record has this timestamp or a later one."""
    segment_index.load_whole(log, segment)
    offset = segment.offset_before_timestamp(timestamp_ms)
    return max(offset, segment.base_offset)
