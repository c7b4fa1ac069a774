"""A log's producers after opening and truncation: from the newest snapshot that is old enough, and
the segments after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = ["rebuild_producers", "restore_producers"]


def restore_producers(log: LocalLog, offset: int) -> None:
    """Restore the producer table to its state when the log ended at ``offset``."""
    core = log.core
    index = log.directory.index
    core.producers.clear()
    start = 0
    snapshots = index.snapshots(log.name)
    for candidate in reversed([known for known in snapshots if known <= offset]):
        snapshot = index.snapshot(log.name, candidate)
        if snapshot is None:
            continue
        try:
            core.producers.unpack(snapshot)
        except ValueError:
            continue  # of another version: an older one, or the segments, will do
        start = candidate
        break
    core.producers.any_seen = True
    for segment in core.segments:
        if segment.next_offset > start and segment.base_offset < offset:
            # The used part of a segment ends at or before ``offset``.
            _take_in(log, segment, start)


def rebuild_producers(log: LocalLog) -> None:
    """Read the producers' state again, as of the log's end."""
    if log.core.producers.any_seen:
        restore_producers(log, log.core.log_end_offset)


def _take_in(log: LocalLog, segment: LogSegment, start: int) -> None:
    """Add the producers of a segment from an offset on, across damaged parts."""
    position = 0
    while position < segment.size_bytes:
        position, _status = log.core.scan(
            segment, position, segment.size_bytes, producers_from=start, into="producers"
        )
        if position < segment.size_bytes:
            log.corrupt(segment, position)
            damages = segment.damages or ()
            ends = [d.end_position for d in damages if d.position <= position < d.end_position]
            if not ends:
                return  # the file is shorter than its known size: reads report it
            position = ends[0]
