"""Shortens a log from its end: truncation, a restart at another offset, and the end of a log that a
replica has lost or must skip.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.log.errors import CorruptLogError
from kstore.log.local import checkpoint
from kstore.log.local.durability import forget_durable, publish
from kstore.log.local.start_offset import write_start_offset
from kstore.log.recovery.producer_state import rebuild_producers
from kstore.log.recovery.segment_index import forget_tail, load_whole
from kstore.log.recovery.segment_scan import rescan
from kstore.log.retention.retention import remove_dropped
from kstore.log.segments.shared_files import own_file

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = ["cut_at_hole", "leave_out", "restart", "skip_lost", "truncate"]


def truncate(log: LocalLog, offset: int) -> int:
    """Remove the batches that contain ``offset`` or later offsets. The log then ends at ``offset``,
    even if the records before it were compacted away, or at the start of the batch that contained
    it. Returns the new log end offset.
    """
    with log.swapping, log.core:
        end = _truncate(log, offset)
    log.wake()
    return end


def _truncate(log: LocalLog, offset: int) -> int:
    """`truncate`, with both locks held."""
    core = log.core
    if offset >= core.log_end_offset:
        return core.log_end_offset
    if offset < core.log_start_offset:
        raise log.out_of_range(offset)
    count, position, end = _cut_place(log, offset)
    lost_until = log.lost_until
    # If the process is killed before the log ends there, offsets below it are not reassigned.
    log.lost_until = max(lost_until, end)
    try:
        _cut(log, count, position, end)
    except BaseException:
        log.lost_until = lost_until
        raise
    last = core.active
    if last.next_offset < end:
        try:
            _sync_cut(log, last)
            log.begin_segment(end)
        except OSError:
            core.set_offsets(core.log_start_offset, last.next_offset, core.high_watermark)
            raise
        if core.durable_offset == end:  # everything is durable: no later sync sets this
            log.disk.reached = (end, 0, end)
    log.lost_until = lost_until
    return end


def restart(log: LocalLog, offset: int) -> None:
    """Remove every record; the log is then empty and begins at ``offset``."""
    core = log.core
    with log.swapping, core:
        _cut(log, 1, 0, core.segments[0].base_offset)
        core.epochs.clear()
        core.producers.clear()
        first = core.segments[0]
        if first.base_offset != offset:
            core.set_segments([log.new_segment(offset)])
            log.unremoved.append(first.path)
            log.disk.unsynced_names = True
        log.lost_epochs = []
        log.cleaned_offset = -1
        log.unsaved.snapshots = {}
        log.disk.reached = (offset, 0, offset)
        core.durable_offset = offset
        forget_durable(log, offset, offset)
        core.set_offsets(offset, offset, offset)
        log.note_dirty()
        remove_dropped(log)
    write_start_offset(log)
    checkpoint.write_now(log)
    log.wake()


def skip_lost(log: LocalLog) -> None:
    """Skip the offsets that a replica lost and could not fetch again: it becomes the leader, and
    must not assign them to other records. It keeps their leader epochs, with which its followers
    verify their own records at these offsets.
    """
    core = log.core
    with core:
        lost = log.lost_until
        log.note_dirty()
        if lost > core.log_end_offset and not log.read_only:
            log.begin_segment(lost)  # if this fails, nothing is skipped or forgotten
            for epoch, start in log.lost_epochs:
                if epoch > core.epochs.latest_epoch and start >= core.log_end_offset:
                    core.epochs.assign_epoch(epoch, start)
            core.set_offsets(core.log_start_offset, lost, core.high_watermark)
        log.hole_from = -1  # the records after it may be the only copy
        log.lost_until, log.lost_epochs = 0, []


def cut_at_hole(log: LocalLog) -> None:
    """Truncate the log at its first hole, where records were not durable before a power loss.
    Another replica leads and has all records, and this one must not appear to have the lost ones.
    If it becomes leader before it has fetched them again, it does not reassign their offsets.
    """
    core = log.core
    with log.swapping, core:
        hole, end = log.first_hole(), core.log_end_offset
        if hole >= 0:
            known = [*core.epochs.as_list(), *log.lost_epochs]
            log.lost_epochs = known = [each for each in known if each[1] >= hole]
            log.lost_until = max(log.lost_until, end)  # first: a kill may follow
            try:
                _truncate(log, hole)
            finally:
                log.lost_epochs = known
        log.hole_from = -1
        log.note_dirty()
    if hole >= 0:
        from logging import getLogger

        getLogger("kstore.log").warning(
            "%s: records from offset %d on were not on the disk when the machine stopped: "
            "everything after them, up to %d, is cut off and fetched again",
            log.topic_partition, hole, end,
        )  # fmt: skip
    log.wake()


def leave_out(log: LocalLog, offset: int) -> None:
    """Remove all records from an offset on, and count them as lost. The log continues at its former
    end, so that no offset is assigned twice, even if this fails half way.
    """
    core = log.core
    with log.swapping, core:
        if offset < core.log_start_offset:
            raise log.out_of_range(offset)
        end = core.log_end_offset
        if offset < end:
            if core.active.base_offset < end:
                log.roll_for_append(end)  # on a full disk this fails, and nothing is removed
            _cut_before_active(log, offset)
        skip_lost(log)
    log.wake()


def _cut_before_active(log: LocalLog, offset: int) -> None:
    """Remove all records from an offset on. The active segment, which is empty, stays."""
    core = log.core
    following, lost_until, end = core.active, log.lost_until, core.log_end_offset
    log.lost_until = max(lost_until, end)  # in case of a kill before it is active again
    core.set_segments(core.segments[:-1])
    try:
        count, position, cut_end = _cut_place(log, offset)
        _cut(log, count, position, cut_end)
        _sync_cut(log, core.active)
    finally:
        log.directory.lost_offsets += end - core.log_end_offset
        log.take_segment(following)
        core.set_offsets(core.log_start_offset, end, core.high_watermark)
        log.lost_until = lost_until


def _cut_place(log: LocalLog, offset: int) -> tuple[int, int, int]:
    """Where to truncate: the number of segments to keep; in the last of them, the position of the
    batch that contains ``offset``, or of the first batch after it; and the new log end offset.
    """
    count = sum(1 for segment in log.core.segments if segment.base_offset <= offset)
    segment = log.core.segments[count - 1]
    if offset >= segment.next_offset:
        return count, segment.size_bytes, offset
    try:
        found = log.core.slice_at(offset, log.core.log_end_offset, 0)
    except CorruptLogError as error:
        if error.segment != segment.path:
            return count, segment.size_bytes, offset  # the damaged segment is removed
        if error.first_offset < 0:
            raise
        # The batch is in a damaged part, which is removed, too.
        return count, error.position, min(offset, error.first_offset)
    if found is None or found[0] != segment.path:
        return count, segment.size_bytes, offset
    return count, found[1], min(offset, found[3])


def _cut(log: LocalLog, count: int, position: int, end: int) -> None:
    """Keep the first ``count`` segments, the last of them up to a position, and end the log at
    ``end``.

    Memory is updated before a file changes, because readers take no lock. The last segment is
    scanned up to its new end in a copy: a reader would pass records that a shorter segment lacks,
    although they stay. If the disk fails, the log keeps the data that is not removed yet.
    """
    core = log.core
    left = list(core.segments)
    last = left[count - 1]
    publish(log, min(core.durable_offset, end))
    forget_tail(log, last, last.base_offset)
    before, shorter = last.copy(), last.copy()
    core.shift_segments(left[:count])
    try:
        position = rescan(log, shorter, position, end)
        core.forget_end(left[:count], shorter)
        while len(left) > count:
            with suppress(FileNotFoundError):
                log.env.fs.unlink(left[-1].path)
            left.pop()
        _cut_file(last, position)
    except BaseException:
        last.take(before)
        with suppress(OSError):
            load_whole(log, left[-1])  # it is the active segment now
        _end_with(log, left, left[-1].next_offset)
        raise
    _end_with(log, left, end)


def _cut_file(segment: LogSegment, size_bytes: int) -> None:
    if own_file(segment.path, size_bytes):
        segment.close()
    else:
        segment.handle_or_open().truncate(size_bytes)


def _sync_cut(log: LocalLog, segment: LogSegment) -> None:
    """Make a cut durable before another segment follows: otherwise a power loss could bring back
    records that do not belong there, in a segment that no later sync covers.
    """
    try:
        segment.handle_or_open().sync()
        log.env.fs.fsync_dir(log.path)  # for removed segments, and for a file of its own
    except OSError as error:
        log.disk.failure = error
        raise


def _end_with(log: LocalLog, segments: list[LogSegment], end: int) -> None:
    """Set the log to these segments and this log end offset."""
    core = log.core
    last = segments[-1]
    last.sealed = False
    core.set_segments(segments)
    log.cleaned_offset = min(log.cleaned_offset, end)
    forget_durable(log, last.base_offset, end)
    core.epochs.truncate_from_end(end)
    log.lost_epochs = [each for each in log.lost_epochs if each[1] < end]
    # The log start offset may be inside the removed batch.
    start_before = core.log_start_offset
    start = min(start_before, end)
    core.set_offsets(start, end, min(core.high_watermark, end))
    log.unsaved.snapshots = {at: s for at, s in log.unsaved.snapshots.items() if at <= end}
    rebuild_producers(log)
    core.set_high_watermark(core.high_watermark)
    log.note_dirty()
    if start < start_before:
        write_start_offset(log)
        checkpoint.write_now(log)
