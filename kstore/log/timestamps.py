"""The look-up of an offset by time: first the segment, then the stretch between two index entries,
then the batches and records in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._fast.log_segment import LogSegment
from kstore.log import segment_index
from kstore.record import batches, decode

if TYPE_CHECKING:
    from kstore.log.log import Log

__all__ = ["largest_timestamp", "offset_for_timestamp"]

_READ_BYTES = 128 * 1024


def offset_for_timestamp(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    """The first record, in the order of offsets, at or after a time: (offset, its timestamp)."""
    core = log.core
    for segment in tuple(core.segments):
        if segment.next_offset <= core.log_start_offset:
            continue
        if segment.max_timestamp >= timestamp_ms:
            found = _find(log, segment, timestamp_ms)
            if found is not None:
                return found
    return None


def largest_timestamp(log: Log) -> tuple[int, int] | None:
    """The first record with the largest timestamp: (offset, timestamp)."""
    largest = max((segment.max_timestamp for segment in log.core.segments), default=-1)
    if log.core.shows_durable and not log.read_only:
        largest = min(largest, log.durable_timestamp)  # not of what nobody may see yet
    return offset_for_timestamp(log, largest) if largest >= 0 else None


def _find(log: Log, segment: LogSegment, timestamp_ms: int) -> tuple[int, int] | None:
    core = log.core
    start = max(segment.base_offset, core.log_start_offset)
    offset = max(_indexed_offset(log, segment, timestamp_ms), start)
    end = min(segment.next_offset, core.high_watermark)
    while offset < end:
        data, next_offset = core.read(offset, end, _READ_BYTES)
        for batch in batches(data):
            if batch.max_timestamp < timestamp_ms:
                continue
            for record in decode(batch.data, verify=False, start_offset=start, control=True):
                if record.timestamp >= timestamp_ms:
                    return record.offset, record.timestamp
        offset = next_offset
    return None


def _indexed_offset(log: Log, segment: LogSegment, timestamp_ms: int) -> int:
    """An offset of the segment before which nothing has this timestamp or a later one."""
    offset = segment.offset_before_timestamp(timestamp_ms)
    if offset < 0:
        segment_index.load_whole(log, segment)
        offset = segment.offset_before_timestamp(timestamp_ms)
    return max(offset, segment.base_offset)
