"""A segment's index as reads need it: brought into memory from the environment, and created again
from the segment where the environment has lost it, or has it wrong.
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
    """Bring the index entries around an offset into memory. ``wrong``: one of those that are there
    points elsewhere.
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
    """Bring all index entries of a segment into memory."""
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
    """Make a segment's index again, in memory; the next checkpoint writes it down. Appends continue
    but for the last moment.
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
    """Forget what the index has of a log from a segment on, before that is cut. The segment's own
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
    """Where the offsets of a segment end that is not appended to any more."""
    return segment.next_offset if segment.sealed else None


def _below(entries: bytes, position: int) -> bytes:
    """The entries of batches that lie below a position: behind it an append may be going on."""
    size = len(entries)
    while size and _ENTRY.unpack_from(entries, size - ENTRY_BYTES)[1] >= position:
        size -= ENTRY_BYTES
    return entries[:size]


def note_lost(log: LocalLog) -> list[LogSegment]:
    """The environment was started again: what is in memory is not in it. Returns the segments of
    which a part of the index is not in memory either.
    """
    with log.core as core:
        for segment in core.segments:
            if not segment.complete:
                segment.persisted = min(segment.persisted, segment.first_entry)
        log.note_dirty()
        return [each for each in core.segments if each.complete or each.first_entry]
