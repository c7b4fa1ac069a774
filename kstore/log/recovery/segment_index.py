"""A segment's index for reads: loaded from the environment, and rebuilt from the segment if the
environment has lost it, or has a wrong one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kstore._fast.log.log_segment import LogSegment
from kstore.log.index.index_store import ENTRY_BYTES
from kstore.log.local.checkpoint import forget_segments_now
from kstore.log.local.recovery_report import RecoveryReport
from kstore.log.recovery.segment_scan import scan_segment

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog

__all__ = ["forget_tail", "load_around", "load_whole", "note_lost", "reindex"]

_ENTRY = struct.Struct("=IIq")


def load_around(log: LocalLog, segment: LogSegment, offset: int, wrong: bool) -> None:
    """Load the index entries around an offset into memory. ``wrong``: an existing entry
    points to the wrong place.
    """
    index = log.directory.index
    if wrong:
        log.directory.note_wrong_index(segment.path)
        reindex(log, segment)
    elif not segment.complete:
        load_whole(log, segment)
    elif not index.load_window(log.name, segment, offset):
        reindex(log, segment)


def load_whole(log: LocalLog, segment: LogSegment) -> None:
    """Load all index entries of a segment into memory."""
    if not segment.complete and not segment.first_entry:
        return
    index = log.directory.index
    pages = index.pages(log.name, segment.base_offset)
    if segment.complete:
        if len(pages) == segment.persisted * ENTRY_BYTES:
            segment.load(pages, 0)
            return
    elif segment.prepend_missing(pages):
        return
    reindex(log, segment)


def reindex(log: LocalLog, segment: LogSegment) -> None:
    """Rebuild a segment's index, in memory; the next checkpoint writes it. Appends continue except
    for the last moment.
    """
    core = log.core
    file = segment.handle_or_open()
    scratch = LogSegment(segment.base_offset, segment.path, log.opener, file=file)
    scan_segment(log, scratch, 0, RecoveryReport(), "index", limit=_limit(segment))
    with core:
        if scratch.size_bytes < segment.size_bytes:
            core.scan(scratch, scratch.size_bytes, segment.size_bytes, into="index")
        segment.load(_below(scratch.all_entries(), segment.size_bytes), 0)
        if scratch.damages != segment.damages:
            core.note_damages(segment, scratch.damages or ())
        segment.persisted = 0
        segment.complete = False
        if not log.read_only:
            log.unsaved.forgotten.append(segment.base_offset)
            log.note_dirty()


def forget_tail(log: LocalLog, segment: LogSegment | None, base_offset: int) -> None:
    """Delete the index of a log from a segment on, before the log is truncated. The segment's own
    entries stay in memory.
    """
    if segment is not None:
        load_whole(log, segment)
    bases = [s.base_offset for s in log.core.segments if s.base_offset >= base_offset]
    forget_segments_now(log, bases, below=base_offset)
    if segment is not None:
        segment.persisted = 0
        segment.complete = False


def _limit(segment: LogSegment) -> int | None:
    """The end offset of a sealed segment."""
    return segment.next_offset if segment.sealed else None


def _below(entries: bytes, position: int) -> bytes:
    """The entries of batches below a position: after it an append may be in progress."""
    size = len(entries)
    while size and _ENTRY.unpack_from(entries, size - ENTRY_BYTES)[1] >= position:
        size -= ENTRY_BYTES
    return entries[:size]


def note_lost(log: LocalLog) -> list[LogSegment]:
    """The environment was replaced: it does not have what is in memory. Returns the segments whose
    index is not completely in memory either.
    """
    with log.core as core:
        for segment in core.segments:
            if not segment.complete:
                segment.persisted = min(segment.persisted, segment.first_entry)
        log.note_dirty()
        return [each for each in core.segments if each.complete or each.first_entry]
