"""What opening a log finds: which segments there are, how far their bytes are good, what has to be
cut, and what is damaged.

What the index environment says is believed as far as the disk surely has it: up to the last
checkpoint if the machine has not restarted since, else up to the last fdatasync. Behind that every
batch is checked. A tail that holds no whole, valid batch is torn: it is cut off and reported. Bytes
that are no valid batch while good batches follow, and batches whose offsets do not fit between
their neighbours', are damage: they stay, are reported, and a read that meets them raises
CorruptLogError. What the index knew of and no file has is lost: it is reported, and its offsets are
not given again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kstore._fast.log.log_core import LogCore
from kstore._fast.log.log_segment import LogSegment
from kstore.log.index.index_store import LogState, SegmentState
from kstore.log.local.start_offset import read_start_offset
from kstore.log.recovery.producer_state import restore_producers
from kstore.log.segments.segment_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    new_segment,
    only_zeros,
    segment_bases,
    segment_path,
)
from kstore.log.segments.swap import CLEANED, SWAP, finish_swaps

if TYPE_CHECKING:
    from kstore.log.log import Log
    from kstore.log.segments.damage import Bounds, Damage

__all__ = ["Loss", "RecoveryReport", "load", "scan_segment", "skip_lost", "tell_recovery"]

_BLOCK_BYTES = 512  # what a disk writes wholly or not at all
_UNSYNCED_BYTES = 8 << 20  # more than the zeros ahead and what can wait for one fdatasync
_NO_TOPIC_ID = bytes(16)
_LARGEST_OFFSET_DELTA = 2**31 - 1
_EPOCH_AT, _EPOCH_END = 12, 16  # a batch's leader epoch


@dataclass(frozen=True)
class Loss:
    """Offsets that were in the log, by what the index knows, and are gone with the end of a file,
    or with the whole of it.
    """

    segment: str
    first_offset: int
    next_offset: int
    """Lost are ``first_offset`` to before ``next_offset``."""

    def __str__(self) -> str:
        return f"offsets {self.first_offset} to {self.next_offset - 1} are lost from {self.segment}"


@dataclass
class RecoveryReport:
    """What opening a log did and found."""

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    segments: int = 0
    missing_segments: list[int] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    """Offsets that were given and are gone. They are not given again."""

    @property
    def lost_offsets(self) -> int:
        """How many offsets are lost."""
        return sum(loss.next_offset - loss.first_offset for loss in self.losses)

    def __str__(self) -> str:
        parts = [f"{self.segments} segments, {self.scanned_bytes} bytes scanned"]
        if self.truncated_bytes:
            parts.append(f"{self.truncated_bytes} bytes of a torn tail cut off")
        parts += [f"the segment of offset {base} is missing" for base in self.missing_segments]
        parts += [str(damage) for damage in self.damages]
        parts += [str(loss) for loss in self.losses]
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
    found = _find_segments(log, _of_this_log(log, state))
    state = found.state
    trust = _trust(log, state)
    report = RecoveryReport()
    segments: list[LogSegment] = []
    scans: list[tuple[LogSegment, int]] = []
    rows = {row.base_offset: row for row in state.sealed} if state else {}
    for base in found.bases:
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
    gone = set(rows) - {s.base_offset for s in segments} - found.removed
    report.missing_segments = sorted(gone)
    report.segments = len(segments)
    if not segments:
        segments = _first_segment(log, state)
    for segment in segments[:-1]:
        segment.sealed = True
    log.core.set_segments(segments)
    _restore(log, state, trust, scans)
    for segment, position in scans:
        _scan(log, segment, position, trust, report, rows.get(segment.base_offset))
    if state is not None:
        lost = _losses(log, state, found.removed)
        report.losses = [*dict.fromkeys(lost + report.losses)]
    _set_offsets(log, state)
    log.core.active.own_position = log.core.active.size_bytes
    if found.removed and not log.read_only:
        # Only when the index does not name them any more: else they would seem to be lost.
        log.note_dirty()
        for base in found.removed:
            removed = segment_path(log.path, base, LOG_SUFFIX + DELETED_SUFFIX)
            log.log_dir.maintenance.unlink_later(removed, 0)
    return report


@dataclass(frozen=True)
class _Found:
    """The base offsets of the segments that there are, those that were removed on purpose, and the
    state as far as it holds.
    """

    bases: list[int]
    removed: set[int]
    state: LogState | None


def _find_segments(log: Log, state: LogState | None) -> _Found:
    fs = log.log_dir.env.fs
    if state is not None and state.listed_ns == fs.modified_ns(log.path) != 0:
        return _Found([*(row.base_offset for row in state.sealed), state.active_base], set(), state)
    names = fs.listdir(log.path)
    ending = LOG_SUFFIX + DELETED_SUFFIX
    removed = {int(name[: -len(ending)]) for name in names if name.endswith(ending)}
    if not log.read_only:
        names = _finish_swaps(log, names)
        if log.log_dir.index is not None and state is not None:
            state = _of_this_log(log, log.log_dir.index.state(log.name))
    return _Found(segment_bases(names), removed, state)


def _losses(log: Log, state: LogState, removed: set[int]) -> list[Loss]:
    """What the index knew of and the files do not have any more."""
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


def _finish_swaps(log: Log, names: list[str]) -> list[str]:
    """Do what a crash left undone: swaps of the cleaner."""
    fs = log.log_dir.env.fs
    if any(name.endswith((CLEANED, SWAP)) for name in names):
        if log.log_dir.index is not None and any(name.endswith(SWAP) for name in names):
            log.log_dir.index.forget_log(log.name)
        finish_swaps(fs, log.path)
        names = fs.listdir(log.path)
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
    base = 0 if state is None else _resume_offset(log, state, state.log_start_offset)
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
    log: Log,
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
    if not only_zeros(file.read, end, size):  # written ahead: no part of the data
        report.truncated_bytes += size - end
    file.truncate(end)


def _resume_offset(log: Log, state: LogState, end: int) -> int:
    """Where a log that ends at ``end`` goes on: offsets that were given once are not given again. A
    replica goes on at its end, since its leader has what it lost.
    """
    return max(end, state.next_offset) if log.core.follows_end else end


def _set_offsets(log: Log, state: LogState | None) -> None:
    core = log.core
    first, end = core.segments[0].base_offset, core.active.next_offset
    known = state.log_start_offset if state is not None else _start_in_file(log, end)
    start = max(known, first)
    # The records up to the log start may be lost with an unsynced tail: go on behind it.
    resume = max(start, end)
    if state is not None:
        resume = max(_resume_offset(log, state, end), start)
        log.lost_until = max(state.next_offset, start) if state.next_offset > end else 0
    if not log.read_only and (resume > end or (core.active.complete and resume > first)):
        begin_segment(log, resume)
        end = resume
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


def begin_segment(log: Log, offset: int) -> None:
    """Have a log go on at an offset behind its end, in a segment of its own: a gap is legal."""
    core = log.core
    core.active.seal()
    segment = new_segment(log.opener, log.path, offset, log.log_dir.env)
    segment.own_position = 0
    core.set_segments([*core.segments, segment])
    log.unsynced_names = True


def skip_lost(log: Log) -> None:
    """Leave out the offsets that a replica lost and could not fetch again: it is to lead now, and
    must not give them to other records.
    """
    core = log.core
    with core:
        lost, log.lost_until = log.lost_until, 0
        if lost <= core.log_end_offset or log.read_only:
            return
        begin_segment(log, lost)
        core.set_offsets(core.log_start_offset, lost, core.high_watermark)
    log.note_dirty()


def leave_out(log: Log, offset: int) -> None:
    """Remove what lies at an offset and behind it, which counts as lost; the log goes on where it
    ended, so that no offset is given again.
    """
    end = log.core.log_end_offset
    log.lost_until = end
    log.log_dir.lost_offsets += end - log.truncate(offset)
    skip_lost(log)


def tell_recovery(log: Log) -> None:
    """Log what opening a log found, and count what is lost."""
    report = log.recovery
    if log.read_only or not (report.scanned_bytes or report.truncated_bytes or report.losses):
        return
    import logging

    logger = logging.getLogger("kstore.log")
    log.log_dir.lost_offsets += report.lost_offsets
    log.lost = list(report.losses)
    for loss in report.losses:
        logger.error(
            "%s: %s; its log goes on at %d", log.topic_partition, loss, log.core.log_end_offset
        )
    if report.losses:
        log.log_dir.note_damage(log)
    level = logging.WARNING if report.truncated_bytes else logging.INFO
    logger.log(level, "%s: opening it found %s", log.topic_partition, report)


def scan_segment(
    log: Log,
    segment: LogSegment,
    position: int,
    report: RecoveryReport,
    into: str,
    *,
    may_be_torn: bool = False,
    limit: int | None = None,
) -> int:
    """Scan a segment from ``position`` to the end of its file, over damaged parts; return the end
    of what it holds. Damage is added to the report, and reads go round it.

    ``limit``: where its offsets end, if that is known. ``may_be_torn``: the machine may have
    stopped in the middle of a write over zeros, whose blocks reach the disk in any order. Nothing
    from the first lost block on was acknowledged, then, and the scan ends there.
    """
    core = log.core
    file = segment.handle_or_open()
    end = file.size_bytes
    following, epoch_after = _following(log, segment)
    limit = following if limit is None else limit
    mark = segment.mark()
    known = _Known(core, into)
    start = position
    position, _status = core.scan(segment, position, end, into=into, limit=limit)
    report.scanned_bytes += position - start
    is_late = into == "all" and 0 <= epoch_after < core.epochs.latest_epoch
    if (position >= end or only_zeros(file.read, position, end)) and not is_late:
        return position
    from kstore.log.segments.damage import survey  # where nothing is damaged, nobody needs it

    segment.go_back(mark)
    known.restore(core)
    bounds = known.bounds(segment, limit, epoch_after, is_end=segment.sealed or limit != following)
    return _scan_around(
        log, segment, start, report, into, survey(segment.path, file.read, start, end, bounds),
        limit=limit, may_be_torn=may_be_torn,
    )  # fmt: skip


def _scan_around(
    log: Log,
    segment: LogSegment,
    position: int,
    report: RecoveryReport,
    into: str,
    damages: list[Damage],
    *,
    limit: int,
    may_be_torn: bool,
) -> int:
    """Take in what lies between the damaged parts of [position, end of the file)."""
    core = log.core
    file = segment.handle_or_open()
    end = file.size_bytes
    found: list[Damage] = []
    for damage in damages:
        position, _status = core.scan(segment, position, damage.position, into=into, limit=limit)
        is_tail = damage.end_position == end and not damage.is_whole
        near_end = end - damage.position <= _UNSYNCED_BYTES
        if is_tail and not segment.sealed:
            break
        if is_tail and (damage.is_cut or only_zeros(file.read, damage.position, end)):
            report.losses.append(Loss(segment.path, damage.first_offset, damage.next_offset))
            break
        if (
            may_be_torn
            and near_end
            and not damage.is_whole
            and _has_lost_block(segment, damage.position, damage.end_position)
        ):
            break
        found.append(damage)
        core.mark_entry(segment)
        position = segment.size_bytes = damage.end_position
        segment.next_offset = max(segment.next_offset, damage.next_offset)
    else:
        position, _status = core.scan(segment, position, end, into=into, limit=limit)
    if found:
        from kstore.log.segments.damage import tell

        report.damages += found
        base = segment.base_offset
        known = [d for s in core.segments if s.base_offset == base for d in s.damages or ()]
        core.note_damages(segment, tuple(found))
        tell(log, [damage for damage in found if damage not in known])
    return position


def _following(log: Log, segment: LogSegment) -> tuple[int, int]:
    """Where a segment's offsets end at the latest, and the epoch of the next segment's first batch
    (-1: not known).
    """
    behind = [s for s in log.core.segments if s.base_offset > segment.base_offset]
    if not behind:
        return segment.base_offset + _LARGEST_OFFSET_DELTA + 1, -1
    try:
        head = behind[0].handle_or_open().read(_EPOCH_END, 0)
    except FileNotFoundError:
        head = b""
    epoch = int.from_bytes(head[_EPOCH_AT:], "big", signed=True) if len(head) == _EPOCH_END else -1
    return behind[0].base_offset, epoch


class _Known:
    """Epochs and producers as of before a scan, which may have to be undone."""

    def __init__(self, core: LogCore, into: str) -> None:
        self.into = into
        self.epochs = core.epochs.as_list()
        keeps = into == "all" and core.producers.any_seen
        self.producers = core.producers.pack() if keeps else None

    def restore(self, core: LogCore) -> None:
        """Undo the scan."""
        if self.into != "all":
            return
        core.epochs.clear()
        for epoch, offset in self.epochs:
            core.epochs.assign_epoch(epoch, offset)
        core.producers.clear()
        if self.producers is not None:
            core.producers.unpack(self.producers)

    def bounds(self, segment: LogSegment, limit: int, epoch_after: int, *, is_end: bool) -> Bounds:
        """What the scanned batches have to agree with."""
        from kstore.log.segments.damage import Bounds

        expected = segment.next_offset
        if self.into != "all":
            return Bounds(expected, limit, is_end, epochs=self.epochs)
        before = [epoch for epoch, offset in self.epochs if offset < expected]
        floor = before[-1] if before else -1
        return Bounds(expected, limit, is_end, floor, epoch_after=epoch_after)


def _has_lost_block(segment: LogSegment, start: int, end: int) -> bool:
    """Whether a block of the disk in [start, end) is all zeros."""
    first = -(-start // _BLOCK_BYTES) * _BLOCK_BYTES
    data = segment.handle_or_open().read(max(end - first, 0), first)
    whole = range(0, len(data) - _BLOCK_BYTES + 1, _BLOCK_BYTES)
    return any(data.count(0, at, at + _BLOCK_BYTES) == _BLOCK_BYTES for at in whole)
