"""What shortens a log: retention by time, size and log start offset, deletion before an offset,
truncation, and beginning anew elsewhere. Compaction is cleaner.py's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kstore._fast.log.log_segment import LogSegment
from kstore.log.errors import CorruptLogError
from kstore.log.local.durability import publish
from kstore.log.local.start_offset import write_start_offset
from kstore.log.segments.segment_names import new_segment

if TYPE_CHECKING:
    from kstore.log.log import Log

__all__ = ["delete_before", "enforce", "restart", "truncate"]


def enforce(log: Log, now_ms: int) -> int:
    """Delete the segments that are too old, too much or before the log start; return how many."""
    with log.swapping, log.core:
        count = 0
        if log.config.deletes:
            count = max(_expired(log, now_ms), _oversized(log))
        count = max(count, _before_start(log))
        segments = log.core.segments[:count]
        if count and count == len(log.core.segments):
            log.roll_for_append(log.core.log_end_offset)
        _drop_first(log, segments)
    return count


def _deletable(log: Log, count: int) -> bool:
    """Whether the segment with this number may go: it has records, all below the high watermark."""
    segment = log.core.segments[count]
    has_been = segment.size_bytes > 0 or segment.sealed  # the cleaner may have emptied it
    return has_been and segment.next_offset <= log.core.high_watermark


def _expired(log: Log, now_ms: int) -> int:
    if log.config.retention_ms < 0:
        return 0
    count = 0
    for segment in log.core.segments:
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if now_ms - newest <= log.config.retention_ms or not _deletable(log, count):
            break
        count += 1
    return count


def _oversized(log: Log) -> int:
    if log.config.retention_bytes < 0:
        return 0
    excess = log.size_bytes - log.config.retention_bytes
    count = 0
    for segment in log.core.segments:
        if excess - segment.size_bytes < 0 or not _deletable(log, count):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _before_start(log: Log) -> int:
    following = log.core.segments[1:]
    return sum(1 for segment in following if segment.base_offset <= log.core.log_start_offset)


def _drop_first(log: Log, segments: list[LogSegment]) -> None:
    if not segments:
        return
    core = log.core
    core.set_segments(core.segments[len(segments) :])
    if core.segments[0].base_offset > core.log_start_offset:
        core.set_log_start_offset(core.segments[0].base_offset)
    core.epochs.truncate_from_start(core.log_start_offset)
    core.producers.drop_aborted_before(core.log_start_offset)
    log.log_dir.forget_segments(log, segments)
    log.note_dirty()


def delete_before(log: Log, offset: int, *, durable: bool = True) -> None:
    """Move the log start offset to ``offset`` and delete what lies wholly before it.

    ``durable``: it stays so after a crash. Not where somebody would say it again.
    """
    core = log.core
    with log.swapping, core:
        if offset > core.high_watermark:
            raise log.out_of_range(offset)
        if offset <= core.log_start_offset:
            return
        core.set_log_start_offset(offset)
        core.epochs.truncate_from_start(offset)
        core.producers.drop_aborted_before(offset)
        _drop_first(log, core.segments[: _before_start(log)])
    if durable:
        write_start_offset(log)
        log.log_dir.checkpoint(log)
    else:
        log.note_dirty()
    log.tail.wake()


def truncate(log: Log, offset: int) -> int:
    """Remove the batches that hold ``offset`` or more."""
    core = log.core
    with log.swapping, core:
        if offset >= core.log_end_offset:
            return core.log_end_offset
        if offset < core.log_start_offset:
            raise log.out_of_range(offset)
        keep = [s for s in core.segments if s.base_offset <= offset]
        gone = [s for s in core.segments if s.base_offset > offset]
        position = _cut_position(log, offset)
        publish(log, min(core.durable_offset, offset))
        log.log_dir.forget_tail(log, keep[-1], keep[-1].base_offset)
        for segment in reversed(gone):
            log.log_dir.env.fs.unlink(segment.path)
        _cut_segment(log, keep[-1], position, offset)
        core.set_segments(keep)
        end = keep[-1].next_offset
        log.forget_durable(keep[-1].base_offset, end)
        core.epochs.truncate_from_end(end)
        # The start may lie inside the batch that went.
        start_before = core.log_start_offset
        start = min(start_before, end)
        core.set_offsets(start, end, min(core.high_watermark, end))
        log.pending_snapshots = {at: s for at, s in log.pending_snapshots.items() if at <= end}
        log.log_dir.rebuild_producers(log)
        core.set_high_watermark(core.high_watermark)
        log.note_dirty()
        if start < start_before:
            write_start_offset(log)
            log.log_dir.checkpoint(log)
    log.tail.wake()
    return end


def restart(log: Log, offset: int) -> None:
    """Remove every record; the log is empty then and begins at ``offset``."""
    core = log.core
    with log.swapping, core:
        first = core.segments[0].base_offset
        publish(log, 0)
        log.log_dir.forget_tail(log, None, first)
        # From the end, so that a stop in between leaves a log that is only shorter.
        for segment in reversed(core.segments):
            segment.close()
            with suppress(FileNotFoundError):  # an earlier attempt came so far
                log.log_dir.env.fs.unlink(segment.path)
        core.set_segments([new_segment(log.opener, log.path, offset, log.env)])
        log.unsynced_names = True
        log.pending_snapshots = {}
        log.durable = (offset, 0, offset)
        core.durable_offset = offset
        log.forget_durable(offset, offset)
        core.epochs.clear()
        core.producers.clear()
        core.set_offsets(offset, offset, offset)
        log.note_dirty()
    write_start_offset(log)
    log.log_dir.checkpoint(log)
    log.tail.wake()


def _cut_position(log: Log, offset: int) -> int:
    """Where the batch that holds ``offset``, or the first behind it, begins in its segment."""
    try:
        found = log.core.slice_at(offset, log.core.log_end_offset, 0)
    except CorruptLogError as error:
        if error.first_offset < 0:
            raise
        return error.position  # damage hides it: that goes, too
    segment = next(s for s in reversed(log.core.segments) if s.base_offset <= offset)
    if found is None or found[0] != segment.path:
        return segment.size_bytes
    return found[1]


def _cut_segment(log: Log, segment: LogSegment, position: int, offset: int) -> None:
    """Cut a segment's file and take in again what is left of its last stretch."""
    segment.sealed = False
    segment.handle_or_open().truncate(position)
    log.log_dir.rescan(log, segment, offset)
