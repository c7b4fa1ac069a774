"""Repairs damaged segments, offline and at the operator's request: `kstore log verify --repair`.

It restores what is certain: base offset, leader epoch, length and magic, which a batch's checksum
does not cover, if the neighbouring batches allow only one value for them. Other damage is removed
from its segment, which leaves a gap. Valid batches are never changed, and a copy of all changed or
removed bytes is stored next to the segment. A torn tail is left to opening the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kstore.env import sync_dir
from kstore.log.log_dir import LogDir
from kstore.log.offline.scan import SegmentPath, Survey, segment_paths, survey_segments
from kstore.log.segments.damage import Damage, Good, restored_header
from kstore.log.segments.swap import CLEANED
from kstore.record import batches

__all__ = ["Repair", "repair"]

COPY_SUFFIX = ".damaged"
_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair: the damaged part, and what is done to it."""

    segment: str
    position: int
    end_position: int
    first_offset: int
    next_offset: int
    """The damage hid ``first_offset`` to below ``next_offset``."""
    reason: str
    action: str
    """"restore": its header gets the values in ``detail``; "remove": its bytes are removed."""
    detail: str
    copy: str
    """The file with the original bytes."""
    restored: bytes | None = None


def repair(
    path: str | os.PathLike[str], *, dry_run: bool = False, open_dir: Callable[[str], LogDir]
) -> list[Repair]:
    """Repair a partition's folder or a log dir; returns what was done, or with ``dry_run`` what
    would be done. ``open_dir`` opens a log dir for writing, which locks it.

    Raises ValueError for a path that is neither, LogDirLockedError while a broker or another
    process has it open, OSError if the disk fails.
    """
    root = Path(path)
    if root.is_file():
        raise ValueError(f"{root} is a single file: use the partition's folder, or the log dir")
    segments = segment_paths(root)
    log_dir = segments[0].path.parent.parent
    done: list[Repair] = []
    with ExitStack() as stack:
        opened = None if dry_run else stack.enter_context(open_dir(str(log_dir)))
        for folder, of_folder in groupby(segments, key=lambda segment: segment.path.parent):
            for found in _plan(of_folder):
                done += found
                if opened is None or not found:
                    continue
                segment = Path(found[0].segment)
                if any(each.restored is None for each in found):
                    _forget_index(opened, folder.name, int(segment.stem))
                _apply(segment, found)
    return done


def _plan(segments: Iterable[SegmentPath]) -> Iterator[list[Repair]]:
    """The repairs of each segment of a partition."""
    for survey in survey_segments(segments):
        yield [_repair(d, survey) for d in survey.damages if not survey.is_torn_tail(d)]


def _repair(damage: Damage, survey: Survey) -> Repair:
    with survey.segment.path.open("rb") as file:
        file.seek(damage.position)
        data = file.read(damage.size_bytes)
    restored = _restored(data, damage, survey)
    if restored is None:
        action, detail = "remove", f"{damage.size_bytes} bytes are removed"
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


def _restored(data: bytes, damage: Damage, survey: Survey) -> bytes | None:
    """The restored batch, if only fields of its header that the checksum does not cover are wrong,
    and the neighbours allow only one place for it.
    """
    whole = restored_header(data)
    if whole is None:
        return None
    [view] = batches(whole)
    span = view.next_offset - view.base_offset
    base = view.base_offset
    is_end = damage.end_position == survey.end and survey.segment.is_last
    limit = survey.bounds.limit if is_end else damage.next_offset
    if not damage.first_offset <= base <= limit - span:
        if damage.next_offset - damage.first_offset != span:
            return None
        base = damage.first_offset
    bounds, rows = survey.bounds, [row for row in survey.rows if isinstance(row, Good)]
    before = [row.epoch for row in rows if row.position < damage.position]
    after = [row.epoch for row in rows if row.position >= damage.end_position]
    before = before[-1:] or [bounds.epoch] * (bounds.epoch >= 0)
    known = sorted({*before, *(after[:1] or [bounds.epoch_after] * (bounds.epoch_after >= 0))})
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
    """The fields of a batch's header that are restored, with old and new values."""
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
    """Copy the damaged bytes, then repair them."""
    for each in repairs:
        with segment.open("rb") as file:
            file.seek(each.position)
            data = file.read(each.end_position - each.position)
        with open(each.copy, "wb") as copy:
            copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
    sync_dir(segment.parent)
    with segment.open("r+b", buffering=0) as file:
        for each in repairs:
            if each.restored is not None:
                os.pwrite(file.fileno(), each.restored, each.position)
        os.fsync(file.fileno())
    removed = [each for each in repairs if each.restored is None]
    if removed:
        _cut_out(segment, removed)


def _cut_out(segment: Path, removed: list[Repair]) -> None:
    """Rewrite a segment without some of its bytes, and replace it."""
    written = segment.with_suffix(CLEANED)  # dropped after a crash
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
    sync_dir(segment.parent)


def _forget_index(log_dir: LogDir, name: str, base_offset: int) -> None:
    """Positions will change: opening the log rebuilds the segment's index."""
    index = log_dir.index
    if index is not None:
        index.change(lambda transaction: index.forget_pages(transaction, name, base_offset))
