"""Scans a segment's bytes, across damaged parts: builds its index, and with ``into="all"`` epochs
and producers too. Newly found damage is reported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kstore.log.local.recovery_report import Loss, RecoveryReport
from kstore.log.segments.segment_names import only_zeros

if TYPE_CHECKING:
    from kstore._fast.log.log_core import LogCore
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog
    from kstore.log.segments.damage import Bounds, Damage

__all__ = ["rescan", "scan_segment", "tell_damage"]

_BLOCK_BYTES = 512  # the unit that a disk writes completely or not at all
_UNSYNCED_BYTES = 8 << 20  # more than the preallocated zeros and what can wait for one fdatasync
_LARGEST_OFFSET_DELTA = 2**31 - 1
_EPOCH_AT, _EPOCH_END = 12, 16  # a batch's leader epoch


def scan_segment(
    log: LocalLog,
    segment: LogSegment,
    position: int,
    report: RecoveryReport,
    into: str,
    *,
    may_be_torn: bool = False,
    limit: int | None = None,
    upto: int | None = None,
) -> int:
    """Scan a segment from ``position`` to ``upto``, or to the end of its file, across damaged
    parts; returns the end of its data. Damage is added to the report, and reads avoid it.

    ``limit``: its end offset, if known. ``may_be_torn``: the machine may have stopped in the middle
    of a write over zeros, whose blocks reach the disk in any order. Then nothing from the first
    lost block on was acknowledged, and the scan ends there.
    """
    core = log.core
    file = segment.handle_or_open()
    end = file.size_bytes if upto is None else upto
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
    from kstore.log.segments.damage import survey  # needed only if something is damaged

    segment.go_back(mark)
    known.restore(core)
    bounds = known.bounds(segment, limit, epoch_after, is_end=segment.sealed or limit != following)
    return _scan_around(
        log, segment, start, report, into, survey(segment.path, file.read, start, end, bounds),
        end=end, limit=limit, may_be_torn=may_be_torn,
    )  # fmt: skip


def _scan_around(
    log: LocalLog,
    segment: LogSegment,
    position: int,
    report: RecoveryReport,
    into: str,
    damages: list[Damage],
    *,
    end: int,
    limit: int,
    may_be_torn: bool,
) -> int:
    """Scan the parts between the damaged parts of [position, end)."""
    core = log.core
    file = segment.handle_or_open()
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
        report.damages += found
        base = segment.base_offset
        known = [d for s in core.segments if s.base_offset == base for d in s.damages or ()]
        core.note_damages(segment, tuple(found))
        tell_damage(log, [damage for damage in found if damage not in known])
    return position


def _following(log: LocalLog, segment: LogSegment) -> tuple[int, int]:
    """The upper bound of a segment's end offset, and the epoch of the next segment's first batch
    (-1: unknown).
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
    """Epochs and producers before a scan, to be able to undo it."""

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
        """What the scanned batches must agree with."""
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


def rescan(log: LocalLog, segment: LogSegment, position: int, limit: int) -> int:
    """Scan the last part of a segment again, up to ``position``, where it is about to be truncated,
    with offsets below ``limit``; returns the end of the data that remains. The caller restores
    epochs and producers.
    """
    kept = tuple(d for d in segment.damages or () if d.end_position <= position)
    if segment.damages is not None:
        log.core.note_damages(segment, kept)
    if kept and kept[-1].end_position == position:
        limit = kept[-1].next_offset
    start = segment.rewind(position)
    return scan_segment(log, segment, start, RecoveryReport(), "index", limit=limit, upto=position)


def tell_damage(log: LocalLog, damages: Sequence[Damage]) -> None:
    """Log newly found damage, and count it. A reader next to the writer leaves that to the
    writer.
    """
    if log.read_only or not damages:
        return
    import logging

    log.directory.damages += len(damages)
    for damage in damages:
        logging.getLogger("kstore.log").error("%s: %s", log.topic_partition, damage)
    log.directory.note_damage(log.topic_partition)
