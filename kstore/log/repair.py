"""Repair damaged segments, offline and at the operator's word: `kstore log verify --repair`.

What is certain is put back: base offset, leader epoch, length and magic, which a batch's checksum
does not cover, where the neighbours leave one value for them. Any other damage is cut out of its
segment, which leaves a gap. Valid batches are never changed, and of every byte that is changed or
removed a copy stays beside the segment. A torn tail is left to opening the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kstore.log.damage import Bad, Bounds, Damage, Good, restored_header, survey, walk
from kstore.log.log_dir import LogDir
from kstore.log.scan import SegmentPath, segment_paths
from kstore.log.swap import CLEANED
from kstore.record import batches

__all__ = ["Repair", "repair"]

COPY_SUFFIX = ".damaged"
_LARGEST_OFFSET_DELTA = 2**31 - 1
_BYTES_AT_ONCE = 1 << 20
_EPOCH_AT, _EPOCH_END = 12, 16  # a batch's leader epoch


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair: of a damaged part, and what becomes of it."""

    segment: str
    position: int
    end_position: int
    first_offset: int
    next_offset: int
    """The damage hid ``first_offset`` to before ``next_offset``."""
    reason: str
    action: str
    """"restore": its header gets the values in ``detail``; "remove": its bytes are cut out."""
    detail: str
    copy: str
    """The file that gets the bytes as they were."""
    restored: bytes | None = None


def repair(
    path: str | os.PathLike[str], *, dry_run: bool = False, open_dir: Callable[[str], LogDir]
) -> list[Repair]:
    """Repair a partition's folder or a log dir; return what was done, or with ``dry_run`` what
    would be. ``open_dir`` opens a log dir for writing, which locks it.

    Raises ValueError for a path that is neither, LogDirLockedError while a broker or another
    process has it open, OSError where the disk fails.
    """
    root = Path(path)
    if root.is_file():
        raise ValueError(f"{root} is one file: name the partition's folder, or the log dir")
    segments = segment_paths(root)
    log_dir = segments[0].path.parent.parent
    done: list[Repair] = []
    with ExitStack() as stack:
        opened = None if dry_run else stack.enter_context(open_dir(str(log_dir)))
        for folder, of_folder in groupby(segments, key=lambda segment: segment.path.parent):
            for found in _plan(list(of_folder)):
                done += found
                if opened is None or not found:
                    continue
                segment = Path(found[0].segment)
                if any(each.restored is None for each in found):
                    _forget_index(opened, folder.name, int(segment.stem))
                _apply(segment, found)
    return done


def _plan(segments: list[SegmentPath]) -> Iterator[list[Repair]]:
    """The repairs of each segment of a partition."""
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        limit = segment.base_offset + _LARGEST_OFFSET_DELTA + 1
        epoch_after = -1
        if not is_last:
            limit = segments[at + 1].base_offset
            epoch_after = _first_epoch(segments[at + 1].path)
        with segment.path.open("rb", buffering=0) as file:
            descriptor = file.fileno()

            def read(size: int, position: int, descriptor: int = descriptor) -> bytes:
                return os.pread(descriptor, size, position)

            end = os.fstat(descriptor).st_size
            bounds = Bounds(
                segment.base_offset, limit, limit_is_end=not is_last, epoch_after=epoch_after
            )
            damages = survey(str(segment.path), read, 0, end, bounds)
            if is_last and damages and damages[-1].end_position == end and not damages[-1].is_whole:
                damages.pop()  # a torn tail, or space taken ahead
            rows = list(walk(read, 0, end, bounds)) if damages else []
            yield [_repair(damage, rows, read, epoch_after) for damage in damages]


def _first_epoch(segment: Path) -> int:
    """The leader epoch that a segment's first batch says it has; -1: it has none."""
    with segment.open("rb") as file:
        head = file.read(_EPOCH_END)
    return int.from_bytes(head[_EPOCH_AT:], "big", signed=True) if len(head) == _EPOCH_END else -1


def _repair(
    damage: Damage, rows: list[Good | Bad], read: Callable[[int, int], bytes], epoch_after: int
) -> Repair:
    data = read(damage.size_bytes, damage.position)
    restored = _restored(data, damage, rows, epoch_after)
    if restored is None:
        action, detail = "remove", f"{damage.size_bytes} bytes are cut out"
    else:
        action, detail = "restore", _changes(data, restored)
    return Repair(
        damage.segment,
        damage.position,
        damage.end_position,
        damage.first_offset,
        damage.next_offset,
        damage.reason,
        action,
        detail,
        f"{damage.segment}.{damage.position}{COPY_SUFFIX}",
        restored,
    )


def _restored(
    data: bytes, damage: Damage, rows: list[Good | Bad], epoch_after: int
) -> bytes | None:
    """The batch as it was, if nothing but its header's uncovered fields is wrong, and the
    neighbours leave one place for it.
    """
    whole = restored_header(data)
    if whole is None:
        return None
    [view] = batches(whole)
    span = view.next_offset - view.base_offset
    base = view.base_offset
    if not damage.first_offset <= base <= damage.next_offset - span:
        if damage.next_offset - damage.first_offset != span:
            return None
        base = damage.first_offset
    before = [r.epoch for r in rows if isinstance(r, Good) and r.position < damage.position]
    after = [r.epoch for r in rows if isinstance(r, Good) and r.position >= damage.end_position]
    behind = after[:1] or [epoch_after] * (epoch_after >= 0)
    known = sorted({*before[-1:], *behind})
    epoch = view.leader_epoch
    if known and not known[0] <= epoch <= known[-1]:
        if len(known) > 1:
            return None
        epoch = known[0]
    return (
        base.to_bytes(8, "big", signed=True)
        + whole[8:12]
        + epoch.to_bytes(4, "big", signed=True)
        + whole[16:]
    )


def _changes(data: bytes, restored: bytes) -> str:
    """Which fields of a batch's header are put back, from which value to which."""
    fields = {
        "base offset": slice(0, 8),
        "batch length": slice(8, 12),
        "leader epoch": slice(12, 16),
        "magic": slice(16, 17),
    }
    return ", ".join(
        f"{name} {int.from_bytes(data[at], 'big', signed=True)} becomes "
        f"{int.from_bytes(restored[at], 'big', signed=True)}"
        for name, at in fields.items()
        if data[at] != restored[at]
    )


def _apply(segment: Path, repairs: list[Repair]) -> None:
    """Copy what is damaged, then put it right."""
    for each in repairs:
        with segment.open("rb") as file:
            file.seek(each.position)
            data = file.read(each.end_position - each.position)
        with open(each.copy, "wb") as copy:
            copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
    _sync_folder(segment.parent)
    with segment.open("r+b", buffering=0) as file:
        for each in repairs:
            if each.restored is not None:
                os.pwrite(file.fileno(), each.restored, each.position)
        os.fsync(file.fileno())
    removed = [each for each in repairs if each.restored is None]
    if removed:
        _cut_out(segment, removed)


def _cut_out(segment: Path, removed: list[Repair]) -> None:
    """Write a segment anew without some of its bytes, and put it in place."""
    written = segment.with_suffix(CLEANED)  # a crash leaves the old one: this is dropped then
    with segment.open("rb") as source, written.open("wb") as target:
        for each in removed:
            while left := each.position - source.tell():
                target.write(source.read(min(left, _BYTES_AT_ONCE)))
            source.seek(each.end_position)
        while piece := source.read(_BYTES_AT_ONCE):
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())
    written.replace(segment)
    _sync_folder(segment.parent)


def _forget_index(log_dir: LogDir, name: str, base_offset: int) -> None:
    """Positions will change: opening the log makes the segment's index anew."""
    index = log_dir.index
    if index is not None:
        index.change(lambda transaction: index.forget_pages(transaction, name, base_offset))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
