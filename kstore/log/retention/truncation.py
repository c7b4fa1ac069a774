"""What shortens a log from its end: truncation, beginning again elsewhere, and the end of a log
that a replica has lost or has to leave out.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.log.errors import CorruptLogError
from kstore.log.local import checkpoint
from kstore.log.local.durability import forget_durable, publish
from kstore.log.local.start_offset import write_start_offset
from kstore.log.recovery.producer_state import rebuild_producers
from kstore.log.recovery.segment_index import forget_tail
from kstore.log.recovery.segment_scan import rescan
from kstore.log.segments.segment_names import new_segment
from kstore.log.segments.shared_files import own_file

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = ["cut_at_hole", "leave_out", "restart", "skip_lost", "truncate"]


def truncate(log: LocalLog, offset: int) -> int:
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
        forget_tail(log, keep[-1], keep[-1].base_offset)
        before, mark = core.segments, keep[-1].mark()
        # Who reads takes no lock: memory is to know first.
        core.forget_end(keep, position)
        try:
            for segment in reversed(gone):
                with suppress(FileNotFoundError):  # a truncation that failed has removed it
                    log.env.fs.unlink(segment.path)
            _cut_segment(log, keep[-1], position, offset)
        except BaseException:
            keep[-1].go_back(mark)
            core.shift_segments(before)
            raise
        core.set_segments(keep)
        end = keep[-1].next_offset
        log.cleaned_offset = min(log.cleaned_offset, end)
        forget_durable(log, keep[-1].base_offset, end)
        core.epochs.truncate_from_end(end)
        log.lost_epochs = [each for each in log.lost_epochs if each[1] < end]
        # The start may lie inside the batch that went.
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
    log.wake()
    return end


def restart(log: LocalLog, offset: int) -> None:
    """Remove every record; the log is empty then and begins at ``offset``."""
    core = log.core
    with log.swapping, core:
        first = core.segments[0].base_offset
        publish(log, 0)
        forget_tail(log, None, first)
        # From the end, so that a stop in between leaves a log that is only shorter.
        for segment in reversed(core.segments):
            segment.close()
            with suppress(FileNotFoundError):  # an earlier attempt came so far
                log.env.fs.unlink(segment.path)
        for path in log.unremoved:
            with suppress(FileNotFoundError):
                log.env.fs.unlink(path)  # its name may be the new one's
        log.unremoved = []
        core.set_segments([new_segment(log.opener, log.path, offset, log.env)])
        log.disk.unsynced_names = True
        log.cleaned_offset = -1
        log.unsaved.snapshots = {}
        log.disk.reached = (offset, 0, offset)
        core.durable_offset = offset
        forget_durable(log, offset, offset)
        core.epochs.clear()
        log.lost_epochs = []
        core.producers.clear()
        core.set_offsets(offset, offset, offset)
        log.note_dirty()
    write_start_offset(log)
    checkpoint.write_now(log)
    log.wake()


def skip_lost(log: LocalLog) -> None:
    """Leave out the offsets that a replica lost and could not fetch again: it is to lead now, and
    must not give them to other records. It knows on which leader epochs they were: by these its
    followers see that what they have of the offsets is right.
    """
    core = log.core
    with core:
        log.hole_from = -1  # what is behind it may be all that there is
        lost, log.lost_until = log.lost_until, 0
        epochs, log.lost_epochs = log.lost_epochs, []
        log.note_dirty()
        if lost <= core.log_end_offset or log.read_only:
            return
        for epoch, start in epochs:
            if epoch > core.epochs.latest_epoch and start >= core.log_end_offset:
                core.epochs.assign_epoch(epoch, start)
        log.begin_segment(lost)
        core.set_offsets(core.log_start_offset, lost, core.high_watermark)


def cut_at_hole(log: LocalLog) -> None:
    """Remove what lies behind records that a power loss took before they were on the disk: another
    replica leads and has all of it, and this one must not seem to have what it lost. If it has to
    lead before it has fetched them again, no offset is given again.
    """
    core = log.core
    hole, end = log.first_hole(), core.log_end_offset
    if hole >= 0:
        from logging import getLogger

        with core:
            known = [*core.epochs.as_list(), *log.lost_epochs]
            log.lost_epochs = known = [each for each in known if each[1] >= hole]
            log.lost_until = max(log.lost_until, end)  # first: a kill may come in between
        truncate(log, hole)
        log.lost_epochs = known
        getLogger("kstore.log").warning(
            "%s: records from offset %d on were not on the disk when the machine stopped: what is "
            "behind them, up to %d, is cut off and fetched again",
            log.topic_partition, hole, end,
        )  # fmt: skip
    log.hole_from = -1
    log.note_dirty()


def leave_out(log: LocalLog, offset: int) -> None:
    """Remove what lies at an offset and behind it, which counts as lost; the log continues where it
    ended, so that no offset is given again.
    """
    end = log.core.log_end_offset
    log.lost_until = end
    log.directory.lost_offsets += end - truncate(log, offset)
    skip_lost(log)


def _cut_position(log: LocalLog, offset: int) -> int:
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


def _cut_segment(log: LocalLog, segment: LogSegment, position: int, offset: int) -> None:
    """Cut a segment's file and take in again what is left of its last stretch."""
    segment.sealed = False
    if own_file(segment.path, position):
        segment.close()
    segment.handle_or_open().truncate(position)
    rescan(log, segment, offset)
