"""Loads a log from its files: finds the segments and the end of their valid data, truncates torn
tails, and reports damage and losses.

The index environment is trusted as far as the disk certainly has the data: up to the last
checkpoint if the machine has not restarted since, otherwise up to the last fdatasync. After that
every batch is checked. A tail without a whole, valid batch is torn: it is truncated and reported.
Invalid bytes that valid batches follow, and batches whose offsets do not fit between those of their
neighbours, are damage: they stay, are reported, and a read of them raises CorruptLogError.
Data that the index knows and no file has is lost: it is reported, and its offsets are not assigned
again.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kstore._fast.log.log_segment import LogSegment
from kstore.log.index.index_store import LogState, SegmentState
from kstore.log.local.recovery_report import Loss, RecoveryReport
from kstore.log.local.start_offset import read_start_offset
from kstore.log.recovery.producer_state import restore_producers
from kstore.log.recovery.segment_scan import scan_segment
from kstore.log.segments.segment_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    new_segment,
    only_zeros,
    segment_bases,
    segment_path,
)
from kstore.log.segments.swap import (
    CLEANED,
    Swap,
    find_swaps,
    finish,
    is_needed,
    take_back,
    with_end,
)

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog

__all__ = ["load"]

_NO_TOPIC_ID = bytes(16)


@dataclass(frozen=True)
class _Trust:
    """Everything below this position of this segment is as the environment says."""

    base: int
    position: int
    offset: int
    is_checkpoint: bool


def load(log: LocalLog, state: LogState | None) -> RecoveryReport:
    """Bring a log's core to the state of its files. Raises OSError if they can't be read (or
    truncated).
    """
    try:
        return _load(log, state)
    except FileNotFoundError:
        if state is None or not state.listed_ns:
            raise
        # The folder has changed, although its timestamp is the one that the index knows.
        return _load(log, replace(state, listed_ns=0))


def _load(log: LocalLog, state: LogState | None) -> RecoveryReport:
    fs = log.env.fs
    found = _find_segments(log, _of_this_log(log, state))
    state = found.state
    rows = {row.base_offset: row for row in state.sealed} if state else {}
    trust = _lowered(_trust(log, state), found.bases, rows)
    report = RecoveryReport()
    segments: list[LogSegment] = []
    scans: list[tuple[LogSegment, int]] = []
    for base in found.bases:
        path = found.paths.get(base) or segment_path(log.path, base)
        segment = LogSegment(base, path, log.opener, created_ms=log.directory.now_ms())
        if base in found.paths:
            segment.handle_or_open()  # the file stays open when it is renamed
            scans.append((segment, 0))
        elif base < trust.base and base in rows:
            row = rows[base]
            if fs.file_size(path) == row.size_bytes:
                segment.size_bytes, segment.next_offset = row.size_bytes, row.next_offset
                segment.max_timestamp = row.max_timestamp
                segment.first_timestamp = row.first_timestamp
                segment.first_entry = segment.persisted = row.entries
                segment.complete = True
            else:
                scans.append((segment, 0))
        elif base == trust.base and state is not None:
            size = fs.file_size(path)
            start = _resume(log, segment, state, trust, size)
            if start != size or log.read_only:
                scans.append((segment, start))
        else:
            scans.append((segment, 0))
        segments.append(segment)
    gone = set(rows) - {s.base_offset for s in segments} - found.removed
    report.missing_segments = sorted(gone)
    report.segments = len(segments)
    if not segments:
        segments = _first_segment(log, state)
    for segment in segments[:-1]:
        segment.sealed = True
    log.core.set_segments(segments)
    start = _restore_epochs(log, state, trust, scans)
    for segment, position in scans:
        if segment.base_offset < trust.base:
            _scan(log, segment, position, trust, report, rows.get(segment.base_offset))
    if state is not None and state.has_producers:
        restore_producers(log, start)  # it reads the known parts of segments
    for segment, position in scans:
        if segment.base_offset >= trust.base:
            _scan(log, segment, position, trust, report, rows.get(segment.base_offset))
    if state is not None:
        lost = _losses(log, state, found.removed)
        report.losses = [*dict.fromkeys(lost + report.losses)]
    _set_offsets(log, state)
    log.hole_from = _hole_from(log, state, trust)
    log.hole_from = log.hole_from if log.first_hole() >= 0 else -1
    log.core.active.own_position = log.core.active.size_bytes
    if found.removed and not log.read_only:
        # Only after the index has removed them: otherwise they would appear to be lost.
        log.note_dirty()
        for base in found.removed:
            removed = segment_path(log.path, base, LOG_SUFFIX + DELETED_SUFFIX)
            log.upkeep.unlink_later(removed, 0)
    return report


@dataclass(frozen=True)
class _Found:
    """The base offsets of the existing segments, those that were deleted on purpose, and the part
    of the state that is valid.
    """

    bases: list[int]
    removed: set[int]
    state: LogState | None
    paths: dict[int, str] = field(default_factory=dict)
    """The paths of segments that do not have their final names yet."""


def _find_segments(log: LocalLog, state: LogState | None) -> _Found:
    fs = log.env.fs
    if state is not None and state.listed_ns == fs.modified_ns(log.path) != 0:
        return _Found([*(row.base_offset for row in state.sealed), state.active_base], set(), state)
    names = fs.listdir(log.path)
    ending = LOG_SUFFIX + DELETED_SUFFIX
    removed = {int(name[: -len(ending)]) for name in names if name.endswith(ending)}
    if log.finishes_swaps:
        names, state = _finish_swaps(log, names, state)
        return _Found(segment_bases(names), removed, state)
    return _look_through(log, _Found(segment_bases(names), removed, state), names)


def _losses(log: LocalLog, state: LogState, removed: set[int]) -> list[Loss]:
    """Data that the index knows and the files no longer have."""
    ends = {segment.base_offset: segment for segment in log.core.segments}
    known = [(row.base_offset, row.next_offset) for row in state.sealed]
    known.append((state.active_base, state.next_offset))
    found = []
    for base, next_offset in known:
        segment = ends.get(base)
        if segment is None and base in removed:
            continue
        first = max(base if segment is None else segment.next_offset, state.log_start_offset)
        if first < next_offset:
            found.append(Loss(segment_path(log.path, base), first, next_offset))
    return found


def _finish_swaps(
    log: LocalLog, names: list[str], state: LogState | None
) -> tuple[list[str], LogState | None]:
    """Finish or undo the cleaner's swaps that a crash interrupted. Returns the file names after
    that, and the part of the state that is valid.
    """
    fs = log.env.fs
    for name in names:
        if name.endswith(CLEANED):
            fs.unlink(os.path.join(log.path, name))
    for each in find_swaps(names):
        swap = with_end(fs, log.path, each)
        if is_needed(fs, log.path, swap, names):
            state = _forget_replaced(log, swap, names, state)
            finish(fs, log.path, swap)
            fs.fsync_dir(log.path)
        else:
            take_back(fs, log.path, swap)
        names = fs.listdir(log.path)
    return names, state


def _forget_replaced(
    log: LocalLog, swap: Swap, names: list[str], state: LogState | None
) -> LogState | None:
    """Delete the index of the segments that a swap is about to replace. Returns the state without
    them.
    """
    index = log.directory.index
    if state is None or state.active_base < swap.end_offset or not swap.replaces:
        index.forget_logs([log.name])
        return None
    rows = [row.base_offset for row in state.sealed]
    gone = {*swap.replaced(rows), *swap.replaced(segment_bases(names))}
    state.sealed = [row for row in state.sealed if row.base_offset not in gone]
    state.listed_ns = 0
    state.changes += 1
    log.unsaved.changes = state.changes
    without = state

    def forget(transaction: Any) -> None:
        for base in gone:
            index.forget_pages(transaction, log.name, base)
        index.put_state(transaction, log.name, without)

    index.change(forget)
    return state


def _look_through(log: LocalLog, found: _Found, names: list[str]) -> _Found:
    """The segments that the log will have after the writer has finished its swaps."""
    fs = log.env.fs
    bases, paths = set(found.bases), dict(found.paths)
    for each in find_swaps(names):
        swap = with_end(fs, log.path, each)
        if is_needed(fs, log.path, swap, names):
            bases -= set(swap.replaced(found.bases))
            bases.add(swap.base_offset)
            paths[swap.base_offset] = os.path.join(log.path, swap.name)
    return replace(found, bases=sorted(bases), paths=paths)


def _of_this_log(log: LocalLog, state: LogState | None) -> LogState | None:
    if state is None:
        return None
    mine = log.topic_id.bytes if log.topic_id else _NO_TOPIC_ID
    if state.topic_id not in {mine, _NO_TOPIC_ID}:
        return None  # of an earlier log with this name
    log.unsaved.changes = state.changes
    log.cleaned_offset = state.cleaned_offset
    return state


def _trust(log: LocalLog, state: LogState | None) -> _Trust:
    if state is None:
        return _Trust(-1, 0, 0, False)
    if state.boot == log.directory.boot:
        return _Trust(state.active_base, state.position, state.next_offset, True)
    return _Trust(state.durable_base, state.durable_position, state.durable_offset, False)


def _lowered(trust: _Trust, bases: list[int], rows: Collection[int]) -> _Trust:
    """Lower the trusted end if a segment that the index does not know extends beyond it. Such a
    segment has replaced others since, and the trusted part ends before it.
    """
    for base, behind in pairwise(bases):
        if base < trust.base and base not in rows and behind > trust.offset:
            return _Trust(base, 0, base, trust.is_checkpoint)
    return trust


def _resume(log: LocalLog, segment: LogSegment, state: LogState, trust: _Trust, size: int) -> int:
    """Set up a segment from its known state; returns the position where its scan must begin."""
    is_active = segment.base_offset == state.active_base
    if trust.is_checkpoint and is_active and size >= state.position:
        segment.size_bytes, segment.next_offset = state.position, state.next_offset
        segment.max_timestamp = state.max_timestamp
        segment.first_timestamp = state.first_timestamp
        segment.first_entry = segment.persisted = state.entries
        segment.bytes_since_entry = state.bytes_since_entry
        return state.position
    segment.load(log.directory.index.pages(log.name, segment.base_offset), 0)
    start = segment.rewind(min(trust.position, size))
    if start and is_active:
        segment.first_timestamp = state.first_timestamp
    return start


def _first_segment(log: LocalLog, state: LogState | None) -> list[LogSegment]:
    base = 0 if state is None else _resume_offset(log, state, state.log_start_offset)
    if log.read_only:
        path = segment_path(log.path, base)
        return [LogSegment(base, path, log.opener, created_ms=log.directory.now_ms())]
    return [new_segment(log.opener, log.path, base, log.env)]


def _restore_epochs(
    log: LocalLog, state: LogState | None, trust: _Trust, scans: list[tuple[LogSegment, int]]
) -> int:
    """Restore the epochs at the start of the scan, and return that offset. Clears producers."""
    core = log.core
    core.epochs.clear()
    core.producers.clear()
    if state is None:
        return 0
    behind = [s.next_offset for s, _ in scans if s.base_offset >= trust.base]
    start = min([trust.offset, *behind])
    for epoch, offset in state.epochs:
        core.epochs.assign_epoch(epoch, offset)
    core.epochs.truncate_from_end(start + 1)  # one that begins at the end has no records yet
    return start


def _scan(
    log: LocalLog,
    segment: LogSegment,
    position: int,
    trust: _Trust,
    report: RecoveryReport,
    row: SegmentState | None,
) -> None:
    try:
        file = segment.handle_or_open()
    except FileNotFoundError:
        if log.read_only:
            return  # removed by the writer, or not made yet
        raise
    if log.read_only:
        file.refresh()
    # Below the trusted part only the index is missing; epochs and producers are known.
    into = "index" if segment.base_offset < trust.base else "all"
    may_be_torn = not (segment.sealed or trust.is_checkpoint or log.read_only)
    limit = None if row is None else row.next_offset
    end = scan_segment(log, segment, position, report, into, may_be_torn=may_be_torn, limit=limit)
    size = file.size_bytes
    if end == size or segment.sealed or log.read_only:
        return
    if not only_zeros(file.read, end, size):  # preallocated: not part of the data
        report.truncated_bytes += size - end
    file.truncate(end)


def _resume_offset(log: LocalLog, state: LogState, end: int) -> int:
    """The offset at which a log that ends at ``end`` continues: offsets that were assigned once are
    not assigned again. A replica continues at its end, because its leader has the lost records.
    """
    return max(end, state.next_offset, state.lost_until) if log.core.follows_end else end


def _set_offsets(log: LocalLog, state: LogState | None) -> None:
    core = log.core
    first, end = core.segments[0].base_offset, core.active.next_offset
    known = state.log_start_offset if state is not None else _start_in_file(log, end)
    start = max(known, first)
    # The records up to the log start may be lost with an unsynced tail: continue after it.
    resume = max(start, end)
    if state is not None:
        resume = max(_resume_offset(log, state, end), start)
        given = max(state.next_offset, state.lost_until)
        log.lost_until = max(given, start) if given > end else 0
        known_epochs = [*state.epochs, *state.lost_epochs]
        log.lost_epochs = [each for each in known_epochs if end <= each[1] < log.lost_until]
    if not log.read_only and (resume > end or (core.active.complete and resume > first)):
        log.begin_segment(resume)
        end = resume
    if state is not None:
        log.disk.reached = (
            state.durable_base,
            state.durable_position,
            min(state.durable_offset, end),
        )
        core.durable_offset = log.disk.reached[2]
    core.epochs.truncate_from_end(end + 1)
    core.epochs.truncate_from_start(min(start, end))
    unknown = end if core.follows_end else start  # for a replicated log nothing else is certain
    core.set_offsets(min(start, end), end, state.high_watermark if state is not None else unknown)


def _hole_from(log: LocalLog, state: LogState | None, trust: _Trust) -> int:
    """The offset from which the log may have holes that nothing else shows, because segments reach
    the disk in any order. -1: the machine has not stopped since the checkpoint. If the index does
    not know a replica's log, any gap may be a hole, except in a compacted log, where gaps are
    normal.
    """
    if state is None:
        may_be = not (log.core.follows_end or log.config.compacts or log.read_only)
        return log.core.log_start_offset if may_be else -1
    if trust.is_checkpoint:
        return state.hole_from
    known = state.durable_offset if state.hole_from < 0 else state.hole_from
    return min(known, state.durable_offset)


def _start_in_file(log: LocalLog, end: int) -> int:
    """The log start offset of a log that the index does not know."""
    return min(read_start_offset(log.env.fs, log.path), end)
