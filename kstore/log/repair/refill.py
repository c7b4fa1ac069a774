"""Put back what a log lost from the end of a sealed segment, or with the whole of one, from the
batches that another replica has for those offsets.

They need right checksums, and offsets and epochs that fit between the neighbours. A crash leaves
batches that the next opening takes in. What was lost is known until the log is closed.
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
    """What is lost between the segments that there are. What is lost from the end of the log stays
    in ``log.lost``: a replica copies that from its leader. It waits for nobody who appends.
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
    """Put batches where a lost part was, from its first offset on; on the disk when this returns.
    Without any the other replica has no record there, and nothing is lost. Why they can't be put
    there, and nothing has changed; None: it is done.

    Blocks as long as the disk and one walk through the segment take. Raises OSError.
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
    """A sealed, empty segment in the place of one whose file is gone."""
    made = new_segment(log.opener, log.path, int(Path(loss.segment).stem), log.env)
    with log.core as core:
        made.seal()
        made.next_offset = loss.first_offset
        core.set_segments(sorted([*core.segments, made], key=lambda segment: segment.base_offset))
    log.disk.unsynced_names = True
    return made


def _append(log: LocalLog, segment: LogSegment, data: bytes, views: list[BatchView]) -> None:
    """Write batches behind what a sealed segment has."""
    core = log.core
    # First the index forgets how long the segment is: after a crash the file tells.
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
        core.note_damages(segment, segment.damages or ())  # what was known of the part is not true
        take_in(log, segment, views)
    reindex(log, segment)
