"""Rewrites a damaged part of a segment in place, from another replica's batches for its offsets.

It is replaced only by bytes of the same size, with correct checksums and with offsets and epochs
that fit between the neighbours. Nothing else is changed, moved or truncated. A crash leaves damage,
which is reported again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.log.recovery.producer_state import restore_producers
from kstore.log.recovery.segment_index import reindex
from kstore.record import BatchView, InvalidBatchError, batches

if TYPE_CHECKING:
    from kstore._fast.log.log_core import LogCore
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog
    from kstore.log.segments.damage import Damage

__all__ = ["damaged_parts", "misfit", "rewrite", "take_in", "whole_batches"]

_NO_LIMIT = 2**63 - 1


def damaged_parts(log: LocalLog) -> list[Damage]:
    """The known damage in offsets that can be read. It does not wait for appends."""
    core = log.core
    return [
        damage
        for segment in tuple(core.segments)
        for damage in segment.damages or ()
        if damage.next_offset > max(damage.first_offset, core.log_start_offset)
    ]


def rewrite(log: LocalLog, damage: Damage, data: bytes) -> str | None:
    """Write batches to a damaged part; durable on return. Returns why it is impossible (then
    nothing has changed), or None if it is done.

    Blocks for the duration of the disk writes and one scan of the segment. Raises OSError.
    """
    views = whole_batches(data)
    if isinstance(views, str):
        return views
    with log.swapping:
        with log.core as core:
            segment = _segment_of(log, damage)
            if segment is None:
                return "the damage is not in the log any more"
            if len(data) != damage.size_bytes:
                return f"{len(data)} bytes of batches, but {damage.size_bytes} are damaged"
            why = misfit(core, damage.first_offset, damage.next_offset, views)
            if why is not None:
                return why
        file = segment.handle_or_open()
        file.overwrite(data, damage.position)
        file.sync()
        with log.core as core:
            core.note_damages(segment, tuple(d for d in segment.damages or () if d != damage))
            take_in(log, segment, views)
            log.unsaved.changes += 1  # readers in other processes load it again
    reindex(log, segment)
    log.directory.repaired_parts += 1
    return None


def _segment_of(log: LocalLog, damage: Damage) -> LogSegment | None:
    """The segment with this damage. The core's lock is held."""
    if log.closed:
        return None
    return next((s for s in log.core.segments if damage in (s.damages or ())), None)


def whole_batches(data: bytes) -> list[BatchView] | str:
    """Parse these bytes as batches; or why they are not only batches with correct checksums."""
    try:
        views = list(batches(data, verify=True))
    except InvalidBatchError as error:
        return f"they are not whole, valid batches: {error}"
    if sum(view.size_bytes for view in views) != len(data):
        return f"they are not whole, valid batches: {len(data)} bytes end in a part of one"
    return views


def misfit(
    core: LogCore, first_offset: int, next_offset: int, views: list[BatchView]
) -> str | None:
    """Why batches do not fit in the place of these offsets; None if they do."""
    offset, epoch = first_offset, _epoch_at(core, first_offset - 1, -1)
    epoch_after = _epoch_at(core, next_offset, _NO_LIMIT)
    for view in views:
        if not offset <= view.base_offset < view.next_offset <= next_offset:
            return (
                f"offsets {view.base_offset} to {view.next_offset - 1} do not fit in "
                f"{offset} to {next_offset - 1}"
            )
        if view.leader_epoch != -1 and not epoch <= view.leader_epoch <= epoch_after:
            return f"leader epoch {view.leader_epoch} does not fit in {epoch} to {epoch_after}"
        offset, epoch = view.next_offset, max(epoch, view.leader_epoch)
    return None


def _epoch_at(core: LogCore, offset: int, otherwise: int) -> int:
    """The leader epoch of a record of the log."""
    if not core.log_start_offset <= offset < core.log_end_offset:
        return otherwise
    found = core.epochs.epoch_for_offset(offset)
    return otherwise if found is None else found


def take_in(log: LocalLog, segment: LogSegment, views: list[BatchView]) -> None:
    """Apply batches that were rewritten in a segment. The core's lock is held."""
    core = log.core
    _take_epochs(core, views)
    segment.max_timestamp = max(segment.max_timestamp, *(view.max_timestamp for view in views))
    if any(view.producer_id >= 0 for view in views):
        restore_producers(log, core.log_end_offset)
        core.set_high_watermark(core.high_watermark)  # and the last stable offset


def _take_epochs(core: LogCore, views: list[BatchView]) -> None:
    """An epoch may have begun in the damaged part."""
    known = core.epochs.as_list()
    starts = dict(known)
    for view in views:
        begin = max(view.base_offset, core.log_start_offset)
        if view.leader_epoch >= 0 and begin < starts.get(view.leader_epoch, _NO_LIMIT):
            starts[view.leader_epoch] = begin
    if starts == dict(known):
        return
    core.epochs.clear()
    for epoch, offset in sorted(starts.items()):
        core.epochs.assign_epoch(epoch, offset)
