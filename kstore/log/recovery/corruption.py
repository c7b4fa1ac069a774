"""Finds the damage in a log in use, after a read found unexpected bytes. Also finds a last batch
whose leader epoch is impossible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.log.errors import CorruptLogError
from kstore.log.recovery import segment_index
from kstore.log.recovery.segment_scan import tell_damage
from kstore.log.segments.damage import Bounds, Damage, is_batch_at, survey

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = ["doubt_last_batch", "examine"]

EPOCH_BITS = 32
RESTORED_EPOCHS = 1000
"""An older copy of the coordination store can lack this many leader epochs of a partition, in
addition to those that were begun by a clock.
"""


def examine(log: LocalLog, segment: LogSegment, position: int) -> CorruptLogError:
    """Find the damage near a position at which reading stopped, and make reads avoid it.

    Returns the exception if that does not help. Appends continue while the disk is read: the
    content of a segment does not change, unless it is truncated, cleaned or rewritten. In that case
    it is checked again.
    """
    segment_index.load_whole(log, segment)
    core = log.core
    with core:
        size_bytes, next_offset = segment.size_bytes, segment.next_offset
        known, epochs = segment.damages or (), core.epochs.as_list()
    start, end = _stretch(segment, position, (size_bytes, next_offset))
    bounds = Bounds(start[1], end[1], epochs=epochs)
    found = [
        damage
        for damage in survey(segment.path, segment.handle_or_open().read, start[0], end[0], bounds)
        if damage.next_offset > core.log_start_offset
    ]
    for damage in found:
        if damage.position <= position < damage.end_position and damage in known:
            return damage.error()  # it was known
    new = [damage for damage in found if damage not in known]
    if not new:
        return CorruptLogError(segment.path, position, "the bytes do not match the index")
    is_noted = False
    with core:
        if segment not in core.segments:
            return new[0].error()  # it no longer exists, and the reader looks elsewhere
        if segment.size_bytes >= size_bytes and (segment.damages or ()) == known:
            kept = [d for d in known if d.end_position <= start[0] or d.position >= end[0]]
            core.note_damages(segment, tuple(sorted([*kept, *found], key=lambda d: d.position)))
            is_noted = True
    if not is_noted:
        return examine(log, segment, position)
    tell_damage(log, new)
    return min(new, key=lambda damage: abs(damage.position - position)).error()


def _stretch(
    segment: LogSegment, position: int, end: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """(position, offset) before and after a position, not after ``end``, that are correct according
    to the index and the batch.
    """
    places = [(at, offset) for offset, at, _ in segment.index_entries()]
    places += [(d.end_position, d.next_offset) for d in segment.damages or ()]
    below = sorted(place for place in places if place[0] < position)
    above = sorted(place for place in places if position < place[0] < end[0])
    read = segment.handle_or_open().read
    start = next((p for p in reversed(below) if is_batch_at(read, *p)), (0, segment.base_offset))
    return start, next((p for p in above if is_batch_at(read, *p)), end)


def doubt_last_batch(log: LocalLog, most: int, by_clock: range) -> None:
    """Record the last batch as damaged, and forget its leader epoch, if that is far above ``most``,
    the highest epoch that a leader has had. No checksum covers an epoch, and no batch follows that
    would contradict it when the log is opened.

    What one turned bit does not explain is kept as it is: several batches with such an epoch, or
    another difference from the possible ones, and what a leader may have had before the
    coordination store was restored from a copy: an epoch that is only a little above, or one of
    ``by_clock``.
    """
    core = log.core
    with core:
        epochs = core.epochs.as_list()
        epoch, first = epochs[-1] if epochs else (-1, -1)
        if epoch <= most + RESTORED_EPOCHS or epoch in by_clock:
            return
        least = epochs[-2][0] if len(epochs) > 1 else 0
        if not any(least <= epoch ^ 1 << bit <= most for bit in range(EPOCH_BITS)):
            return
        if not core.log_start_offset <= first < core.log_end_offset:
            return
        try:
            found = core.slice_at(first, core.log_end_offset, 1)
        except CorruptLogError:
            return  # it is known
        if found is None or found[4] < core.log_end_offset:
            return
        path, position, size, first_offset, next_offset = found
        damage = Damage(
            path, position, position + size, first_offset, next_offset, "EPOCH_NOT_MONOTONIC",
            f"leader epoch {epoch} in bytes {position + 12} to {position + 15}, expected at most "
            f"{most}",
            is_whole=True,
        )  # fmt: skip
        segment = next(each for each in core.segments if each.path == path)
        core.epochs.truncate_from_end(first)
        core.note_damages(segment, (*(segment.damages or ()), damage))
        log.note_dirty()
    tell_damage(log, [damage])
