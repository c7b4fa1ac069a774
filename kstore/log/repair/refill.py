"""Restores what a log lost from the end of a sealed segment, or with a whole segment, from another
replica's batches for those offsets.

They must have correct checksums, and offsets and epochs that fit between the neighbours. After a
crash, the next opening finds the restored batches. What was lost is known until the log is closed.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from kstore.log.local.checkpoint import forget_segments_now
from kstore.log.local.recovery_report import Loss
from kstore.log.recovery.segment_index import reindex
from kstore.log.repair.rewrite import misfit, take_in, whole_batches
from kstore.log.segments.segment_names import new_segment
from kstore.record import BatchView

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = ["lost_parts", "refill"]


def lost_parts(log: LocalLog) -> list[Loss]:
    """The lost parts between the existing segments. A loss at the end of the log stays in
    ``log.lost``: a replica copies that from its leader. It does not wait for appends.
    """
    core = log.core
    found, behind = [], []
    segments, end = tuple(core.segments), core.log_end_offset
    gaps = [(one.next_offset, next_.base_offset) for one, next_ in pairwise(segments)]
    for loss in log.lost:
        for first, after in gaps:
            part = max(first, loss.first_offset), min(after, loss.next_offset)
            if max(part[0], core.log_start_offset) < part[1]:
                found.append(Loss(loss.segment, *part))
        if end < loss.next_offset:
            behind.append(Loss(loss.segment, max(end, loss.first_offset), loss.next_offset))
    log.lost = found + behind
    return found


def refill(log: LocalLog, loss: Loss, data: bytes) -> str | None:
    """Write batches to a lost part, from its first offset on; durable on return. Without batches
    the other replica has no record there, and nothing is lost. Returns why it is impossible (then
    nothing has changed), or None if it is done.

    Blocks for the duration of the disk writes and one scan of the segment. Raises OSError.
    """
    views = whole_batches(data)
    if isinstance(views, str):
        return views
    with log.cleaning, log.swapping:
        if loss not in lost_parts(log):
            return "the offsets are not lost any more"
        with log.core as core:
            why = misfit(core, loss.first_offset, loss.next_offset, views)
            if why is not None:
                return why
            segment = next((s for s in core.segments if s.path == loss.segment), None)
        if not views:
            log.lost.remove(loss)
            return None
        if segment is None:
            segment = _make_again(log, loss)
        _append(log, segment, data, views)
    return None


def _make_again(log: LocalLog, loss: Loss) -> LogSegment:
    """A sealed, empty segment in place of one whose file was lost."""
    made = new_segment(log.opener, log.path, int(Path(loss.segment).stem), log.env)
    with log.core as core:
        made.seal()
        made.next_offset = loss.first_offset
        core.set_segments(sorted([*core.segments, made], key=lambda segment: segment.base_offset))
    log.disk.unsynced_names = True
    return made


def _append(log: LocalLog, segment: LogSegment, data: bytes, views: list[BatchView]) -> None:
    """Write batches after the content of a sealed segment."""
    core = log.core
    # First the index drops the segment's length: after a crash the file has it.
    forget_segments_now(log, [segment.base_offset])
    file = segment.handle_or_open()
    if file.refresh() > segment.size_bytes:
        file.truncate(segment.size_bytes)  # the beginning of a lost batch
    file.append(data)
    file.sync()
    file.give_back()
    with core:
        segment.size_bytes += len(data)
        segment.next_offset = views[-1].next_offset
        core.note_damages(segment, segment.damages or ())  # the state of the part was wrong
        take_in(log, segment, views)
    reindex(log, segment)
