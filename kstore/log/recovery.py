"""What opening a log finds: which segments there are, how far their bytes are good, what has to be
cut, and what is damaged.

What the index environment says is believed as far as the disk surely has it: up to the last
checkpoint if the machine has not restarted since, else up to the last fdatasync. Behind that every
batch is checked. A tail that holds no whole, valid batch is torn: it is cut off and reported. Bytes
that are no valid batch while good batches follow are damage: they stay, are reported, and a read
that meets them raises CorruptLogError.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kstore._fast.log_core import LogCore
from kstore._fast.log_segment import LogSegment
from kstore.log.index import LogState
from kstore.log.producer_state import restore_producers
from kstore.log.segment import (
    DELETED_SUFFIX,
    new_segment,
    only_zeros,
    segment_bases,
    segment_path,
)
from kstore.log.start_offset import read_start_offset
from kstore.log.swap import CLEANED, SWAP, finish_swaps

if TYPE_CHECKING:
    from kstore.log.log import Log

__all__ = ["Damage", "RecoveryReport", "load", "scan_segment"]

_BYTES_AT_ONCE = 1 << 20
_BLOCK_BYTES = 512  # what a disk writes wholly or not at all
_UNSYNCED_BYTES = 8 << 20  # more than the zeros ahead and what can wait for one fdatasync
_NO_TOPIC_ID = bytes(16)


@dataclass(frozen=True)
class Damage:
    """A part of a segment that holds no whole, valid batch although later bytes do."""

    segment: str
    position: int
    end_position: int

    @property
    def size_bytes(self) -> int:
        """How many bytes are damaged."""
        return self.end_position - self.position


@dataclass
class RecoveryReport:
    """What opening a log did and found."""

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    segments: int = 0
    missing_segments: list[int] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{self.segments} segments, {self.scanned_bytes} bytes scanned"]
        if self.truncated_bytes:
            parts.append(f"{self.truncated_bytes} bytes of a torn tail cut off")
        parts += [f"the segment of offset {base} is missing" for base in self.missing_segments]
        parts += [
            f"{d.size_bytes} damaged bytes at {d.position} of {d.segment}" for d in self.damages
        ]
        return "; ".join(parts)


@dataclass(frozen=True)
class _Trust:
    """Everything below this position of this segment is as the environment says."""

    base: int
    position: int
    offset: int
    is_checkpoint: bool


def load(log: Log, state: LogState | None) -> RecoveryReport:
    """Bring a log's core up to what its files hold. OSError when they can't be read (or cut)."""
    fs = log.log_dir.env.fs
    bases, state = _bases(log, _of_this_log(log, state))
    trust = _trust(log, state)
    report = RecoveryReport()
    segments: list[LogSegment] = []
    scans: list[tuple[LogSegment, int]] = []
    rows = {row.base_offset: row for row in state.sealed} if state else {}
    for base in bases:
        path = segment_path(log.path, base)
        segment = LogSegment(base, path, log.opener, created_ms=log.log_dir.now_ms())
        if base < trust.base and base in rows:
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
    report.missing_segments = sorted(set(rows) - {s.base_offset for s in segments})
    report.segments = len(segments)
    if not segments:
        segments = _first_segment(log, state)
    for segment in segments[:-1]:
        segment.sealed = True
    log.core.set_segments(segments)
    _restore(log, state, trust, scans)
    for segment, position in scans:
        _scan(log, segment, position, trust, report)
    _set_offsets(log, state)
    return report


def _bases(log: Log, state: LogState | None) -> tuple[list[int], LogState | None]:
    """The base offsets of the segments that there are, and the state as far as it holds."""
    fs = log.log_dir.env.fs
    if state is not None and state.listed_ns == fs.modified_ns(log.path) != 0:
        return [*(row.base_offset for row in state.sealed), state.active_base], state
    names = fs.listdir(log.path)
    if not log.read_only:
        names = _finish_removals(log, names)
        if log.log_dir.index is not None and state is not None:
            state = _of_this_log(log, log.log_dir.index.state(log.name))
    return segment_bases(names), state


def _finish_removals(log: Log, names: list[str]) -> list[str]:
    """Do what a crash left undone: swaps of the cleaner, files that were to be removed."""
    fs = log.log_dir.env.fs
    if any(name.endswith((CLEANED, SWAP)) for name in names):
        if log.log_dir.index is not None and any(name.endswith(SWAP) for name in names):
            log.log_dir.index.forget_log(log.name)
        finish_swaps(fs, log.path)
        names = fs.listdir(log.path)
    for name in names:
        if name.endswith(DELETED_SUFFIX):
            with suppress(FileNotFoundError):
                fs.unlink(os.path.join(log.path, name))
    return names


def _of_this_log(log: Log, state: LogState | None) -> LogState | None:
    if state is None:
        return None
    mine = log.topic_id.bytes if log.topic_id else _NO_TOPIC_ID
    if state.topic_id not in {mine, _NO_TOPIC_ID}:
        return None  # of a log that had this name before
    log.changes = state.changes
    log.cleaned_offset = state.cleaned_offset
    return state


def _trust(log: Log, state: LogState | None) -> _Trust:
    if state is None:
        return _Trust(-1, 0, 0, False)
    if state.boot == log.log_dir.boot:
        return _Trust(state.active_base, state.position, state.next_offset, True)
    return _Trust(state.durable_base, state.durable_position, state.durable_offset, False)


def _resume(log: Log, segment: LogSegment, state: LogState, trust: _Trust, size: int) -> int:
    """Set a segment up as it was known to be; return where its scan has to begin."""
    index = log.log_dir.index
    assert index is not None
    is_active = segment.base_offset == state.active_base
    if trust.is_checkpoint and is_active and size >= state.position:
        segment.size_bytes, segment.next_offset = state.position, state.next_offset
        segment.max_timestamp = state.max_timestamp
        segment.first_timestamp = state.first_timestamp
        segment.first_entry = segment.persisted = state.entries
        segment.bytes_since_entry = state.bytes_since_entry
        return state.position
    segment.load(index.pages(log.name, segment.base_offset), 0)
    start = segment.rewind(min(trust.position, size))
    if start and is_active:
        segment.first_timestamp = state.first_timestamp
    return start


def _first_segment(log: Log, state: LogState | None) -> list[LogSegment]:
    base = state.log_start_offset if state is not None else 0
    if log.read_only:
        path = segment_path(log.path, base)
        return [LogSegment(base, path, log.opener, created_ms=log.log_dir.now_ms())]
    return [new_segment(log.opener, log.path, base, log.log_dir.env)]


def _restore(
    log: Log, state: LogState | None, trust: _Trust, scans: list[tuple[LogSegment, int]]
) -> None:
    """Epochs and producers as of where the scan begins."""
    core = log.core
    core.epochs.clear()
    core.producers.clear()
    if state is None:
        return
    behind = [s.next_offset for s, _ in scans if s.base_offset >= trust.base]
    start = min([trust.offset, *behind])
    for epoch, offset in state.epochs:
        core.epochs.assign_epoch(epoch, offset)
    core.epochs.truncate_from_end(start + 1)  # one that begins at the end has no records yet
    if state.has_producers:
        restore_producers(log, start)


def _scan(
    log: Log, segment: LogSegment, position: int, trust: _Trust, report: RecoveryReport
) -> None:
    core = log.core
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
    end = scan_segment(core, segment, position, report, into, may_be_torn=may_be_torn)
    size = file.size_bytes
    if end == size:
        return
    if segment.sealed:
        report.damages.append(Damage(segment.path, end, size))
        segment.corrupt = True
    elif not log.read_only:
        if not only_zeros(file.read, end, size):  # written ahead: no part of the data
            report.truncated_bytes += size - end
        file.truncate(end)


def _set_offsets(log: Log, state: LogState | None) -> None:
    core = log.core
    first, end = core.segments[0].base_offset, core.active.next_offset
    known = state.log_start_offset if state is not None else _start_in_file(log, end)
    start = max(known, first)
    if start > end and not log.read_only:
        # The records up to the log start were lost with an unsynced tail: go on behind it.
        core.active.sealed = True
        core.set_segments(
            [*core.segments, new_segment(log.opener, log.path, start, log.log_dir.env)]
        )
        end = start
    if state is not None:
        log.durable = (state.durable_base, state.durable_position, min(state.durable_offset, end))
        core.durable_offset = log.durable[2]
    core.epochs.truncate_from_end(end + 1)
    core.epochs.truncate_from_start(min(start, end))
    unknown = end if core.follows_end else start  # of a replicated log nothing else is sure
    core.set_offsets(min(start, end), end, state.high_watermark if state is not None else unknown)


def _start_in_file(log: Log, end: int) -> int:
    """The log start offset of a log of which the index knows nothing."""
    return min(read_start_offset(log.log_dir.env.fs, log.path), end)


def scan_segment(
    core: LogCore,
    segment: LogSegment,
    position: int,
    report: RecoveryReport,
    into: str,
    *,
    may_be_torn: bool = False,
) -> int:
    """Scan a segment from ``position`` to the end of its file, over damaged parts where good
    batches follow; return the end of the last good batch. Damage is added to the report.

    ``may_be_torn``: the machine may have stopped in the middle of a write over zeros, whose blocks
    reach the disk in any order. Nothing from the first lost block on was acknowledged, then, and
    the scan ends there.
    """
    end = segment.handle_or_open().size_bytes
    while True:
        start = position
        position, _status = core.scan(segment, position, end, into=into)
        report.scanned_bytes += position - start
        if position >= end or only_zeros(segment.handle_or_open().read, position, end):
            return position
        found = _find_batch(core, segment, position + 1, end)
        if found is None:
            return position
        near_end = end - position <= _UNSYNCED_BYTES
        if may_be_torn and near_end and _has_lost_block(segment, position, found):
            return position
        report.damages.append(Damage(segment.path, position, found))
        segment.corrupt = True
        core.mark_entry(segment, found)
        position = found


def _has_lost_block(segment: LogSegment, start: int, end: int) -> bool:
    """Whether a block of the disk in [start, end) is all zeros."""
    first = -(-start // _BLOCK_BYTES) * _BLOCK_BYTES
    data = segment.handle_or_open().read(max(end - first, 0), first)
    whole = range(0, len(data) - _BLOCK_BYTES + 1, _BLOCK_BYTES)
    return any(data.count(0, at, at + _BLOCK_BYTES) == _BLOCK_BYTES for at in whole)


def _find_batch(core: LogCore, segment: LogSegment, position: int, end: int) -> int | None:
    """Where the next whole, valid batch lies at or behind ``position``, or None."""
    while position < end:
        found = core.find_batch(segment, position, min(position + _BYTES_AT_ONCE, end), end)
        if found >= 0:
            return found
        position += _BYTES_AT_ONCE
    return None
