"""Compacts a log by the rules of Kafka's log cleaner: only the last record of each key remains.

One cleaning reads the dirty part (from the checkpoint up to what may be cleaned) into a map from
key to last offset. Then it writes every segment below the map's end again, without the records that
have newer ones of the same key, and combines small segments. Offsets never change, batches keep
their bounds, and the active segment does not change. ``kstore._fast.log`` processes the batches.
``LogCleaner`` decides when to clean which log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore._fast.log.compaction import BatchCleaner
from kstore._fast.log.key_index import index_batches
from kstore._fast.log.log_segment import LogSegment
from kstore._fast.log.offset_map import OffsetMap
from kstore._fast.record.batch_view import find_disorder
from kstore.log.errors import CorruptLogError, storage_error
from kstore.log.local.durability import sync_sealed
from kstore.log.retention.cleaned_transactions import CleanedTransactions
from kstore.log.retention.segment_swap import SegmentSwap
from kstore.log.segments.segment_names import segment_path
from kstore.log.segments.swap import CLEANED
from kstore.record import InvalidBatchError

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog

__all__ = ["CleaningReport", "Dirt", "clean", "measure"]

DEDUPE_BUFFER_BYTES = 128 * 2**20
"""Kafka's log.cleaner.dedupe.buffer.size."""
_READ_BYTES = 1 << 20
_LARGEST_OFFSET_DELTA = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Dirt:
    """The part of a log that can be cleaned now: offsets [first_dirty_offset,
    first_uncleanable_offset).
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """How long the oldest dirty record has waited beyond max.compaction.lag.ms; 0 if it has not."""

    @property
    def ratio(self) -> float:
        """The dirty share of the bytes that can be cleaned, from 0 to 1. min.cleanable.dirty.ratio
        is the limit for it.
        """
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """The result of one compaction. Sizes are in bytes."""

    first_dirty_offset: int
    end_offset: int
    """The log is clean below this offset."""
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    records_read: int
    records_kept: int
    keyless_records: int
    """Records without a key, which were dropped. A compacted topic should have none."""


def measure(log: LocalLog, now_ms: int, checkpoint: int | None) -> Dirt:
    """How much of a log is dirty. ``checkpoint`` is the offset below which it is clean (None: it
    was never cleaned).
    """
    core = log.core
    first_dirty = core.log_start_offset if checkpoint is None else checkpoint
    if not core.log_start_offset <= first_dirty <= core.log_end_offset:
        first_dirty = core.log_start_offset
    segments = core.segments
    uncleanable = min(core.last_stable_offset, core.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    waiting = [s for s in segments[:-1] if s.next_offset > first_dirty]
    if lag_ms > 0:
        young = (s.base_offset for s in waiting if s.max_timestamp > now_ms - lag_ms)
        uncleanable = min(uncleanable, next(young, uncleanable))
    uncleanable = max(uncleanable, first_dirty)
    ends = [(s, s.next_offset <= first_dirty) for s in segments if s.next_offset <= uncleanable]
    return Dirt(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=uncleanable,
        clean_bytes=sum(s.size_bytes for s, is_clean in ends if is_clean),
        dirty_bytes=sum(s.size_bytes for s, is_clean in ends if not is_clean),
        overdue_ms=_overdue_ms(log, waiting, now_ms),
    )


def _overdue_ms(log: LocalLog, waiting: list[LogSegment], now_ms: int) -> int:
    oldest = min((s.first_timestamp for s in waiting if s.first_timestamp > 0), default=now_ms)
    return max(0, now_ms - max(log.config.max_compaction_lag_ms, 0) - oldest)


def clean(
    log: LocalLog,
    dirt: Dirt,
    now_ms: int,
    *,
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> CleaningReport:
    """Clean the part that ``dirt`` describes.

    Readers and writers continue in the meantime. Raises ValueError for a log whose cleanup policy
    does not include compact, CorruptLogError if a batch is damaged (then nothing is changed),
    LogStorageError if the disk fails (the log is unchanged or partly cleaned, and usable), and
    LogClosedError if the log is closed in the meantime.
    """
    if not log.config.compacts:
        raise ValueError(
            f"{log.topic_partition} is not compacted (cleanup_policy is "
            f"{','.join(log.config.cleanup_policy)}): open it with cleanup_policy='compact'"
        )
    cleaning = _Cleaning(log, now_ms, OffsetMap(dedupe_buffer_bytes, os.urandom(16)), is_cancelled)
    try:
        with log.cleaning:
            report = cleaning.run(dirt)
            with log.core:
                if not cleaning.is_void:
                    log.cleaned_offset = report.end_offset
                    log.note_dirty()
            return report
    except (InvalidBatchError, OSError) as error:
        if log.closed:  # the file may belong to another log
            raise log.closed_error() from error
        if isinstance(error, OSError):
            raise storage_error(error, f"cleaning {log.topic_partition}") from error
        path, position = cleaning.reading
        raise CorruptLogError(path, position + error.position, str(error)) from error


@dataclass(slots=True)
class _Piece:
    """The bytes of a segment, and how many of them are whole batches."""

    data: bytes
    used: int = 0


class _Cleaning:
    """One cleaning of one log."""

    def __init__(
        self, log: LocalLog, now_ms: int, offsets: OffsetMap, is_cancelled: Callable[[], bool]
    ) -> None:
        self.log = log
        self.now_ms = now_ms
        self.offsets = offsets
        self.is_cancelled = is_cancelled
        self.reading = ("", 0)
        self._generation = log.unsaved.generation

    @property
    def is_void(self) -> bool:
        """Whether the log was truncated since then: records in the map may no longer exist."""
        return self._generation != self.log.unsaved.generation

    def run(self, dirt: Dirt) -> CleaningReport:
        """Fill the map, then clean one group after the other."""
        self._fill_map(dirt)
        end = self.offsets.latest_offset + 1
        segments = [s for s in self.log.core.segments[:-1] if s.base_offset < end]
        writer = self._batch_cleaner(end)
        before = sum(segment.size_bytes for segment in segments)
        after, made = 0, 0
        # Transactions are followed through all groups, because one may be in several.
        for group in self._groups(segments):
            if self.is_cancelled() or self.is_void:
                end = group[0].base_offset
                break
            size = self._clean_group(group, writer)
            if size is None:
                end = group[0].base_offset
                break
            after += size
            made += 1
        return CleaningReport(
            first_dirty_offset=dirt.first_dirty_offset,
            end_offset=end,
            segments_before=len(segments),
            segments_after=made,
            bytes_before=before,
            bytes_after=after,
            records_read=writer.records_read,
            records_kept=writer.records_kept,
            keyless_records=writer.keyless,
        )

    def _pieces(self, segment: LogSegment) -> Iterator[_Piece]:
        """The bytes of a segment. The caller sets how much of each piece is whole batches."""
        file = segment.handle_or_open()
        position, wanted = 0, _READ_BYTES
        expected, limit = segment.base_offset, segment.next_offset
        while position < segment.size_bytes:
            self.reading = (segment.path, position)
            data = file.read(min(wanted, segment.size_bytes - position), position)
            if self.log.closed:
                raise self.log.closed_error()
            wrong, _, _ = find_disorder(data, least=expected, limit=limit)
            if wrong >= 0:
                raise self.log.corrupt(segment, position + wrong)
            piece = _Piece(data)
            yield piece
            used = memoryview(data)[: piece.used]
            _, expected, _ = find_disorder(used, least=expected, limit=limit)
            position += piece.used
            if piece.used == 0 and len(data) < wanted:
                raise CorruptLogError(segment.path, position, "a partial batch")
            wanted = _READ_BYTES if piece.used else wanted * 4

    def _fill_map(self, dirt: Dirt) -> None:
        core = self.log.core
        start = dirt.first_dirty_offset
        # Computed again: the log may have been truncated since.
        stop = min(dirt.first_uncleanable_offset, core.last_stable_offset, core.active.base_offset)
        # Also if nothing is dirty: tombstones may have become old enough to be removed.
        self.offsets.latest_offset = start - 1
        transactions = CleanedTransactions(core.producers.aborted_between(start, stop))
        segments = [s for s in core.segments if s.next_offset > start and s.next_offset <= stop]
        following = [s.base_offset for s in core.segments[1:]]
        for segment in segments:
            for piece in self._pieces(segment):
                piece.used, full = index_batches(
                    piece.data, self.offsets, start, transactions.may_discard
                )
                if full or self.is_cancelled():
                    return
            # A gap between this segment and the next is clean too.
            beyond = next((base for base in following if base >= segment.next_offset), stop)
            latest = min(beyond, stop) - 1
            self.offsets.latest_offset = max(self.offsets.latest_offset, latest)

    def _batch_cleaner(self, end: int) -> BatchCleaner:
        core = self.log.core
        last_records = {
            entry.producer_id: (
                entry.last_offset if entry.last_offset >= 0 else None,
                entry.producer_epoch,
            )
            for entry in list(core.producers.entries.values())
        }
        start = core.segments[0].base_offset
        transactions = CleanedTransactions(core.producers.aborted_between(start, end))
        return BatchCleaner(
            self.offsets,
            now_ms=self.now_ms,
            delete_retention_ms=self.log.config.delete_retention_ms,
            upper_bound_offset=end,
            last_records=last_records,
            decide=transactions.may_discard,
        )

    def _groups(self, segments: list[LogSegment]) -> Iterator[list[LogSegment]]:
        """Neighbouring segments that together fit into one segment, by their current sizes."""
        group: list[LogSegment] = []
        size = 0
        for segment in segments:
            fits = (
                group
                and size + segment.size_bytes <= self.log.config.segment_bytes
                and segment.next_offset - 1 - group[0].base_offset <= _LARGEST_OFFSET_DELTA
            )
            if group and not fits:
                yield group
                group, size = [], 0
            group.append(segment)
            size += segment.size_bytes
        if group:
            yield group

    def _clean_group(self, group: list[LogSegment], writer: BatchCleaner) -> int | None:
        """Write the group's remaining records to a segment that replaces it; returns its size in
        bytes. None: the log has changed there meanwhile, and the rest of the group is still dirty.
        """
        log = self.log
        base_offset = group[0].base_offset
        path = segment_path(log.path, base_offset, CLEANED)
        with log.swapping:  # after the log is closed, the folder may belong to another log
            file = log.opener.create(path)
        try:
            for segment in group:
                for piece in self._pieces(segment):
                    piece.used, kept = writer.clean(piece.data)
                    if kept:
                        file.append(kept)
            file.sync()
            size = file.size_bytes
            cleaned = LogSegment(base_offset, path, log.opener, file=file)
            log.core.scan(cleaned, 0, size, into="index")
            cleaned.sealed = True
            cleaned.created_ms = group[-1].created_ms
            is_swapped = self._swap(group, cleaned)
        except BaseException:
            file.close()
            with suppress(OSError), log.swapping.plain:
                if not log.closed:  # the file may have been renamed already
                    log.env.fs.unlink(path)
            raise
        return size if is_swapped else None

    def _swap(self, group: list[LogSegment], cleaned: LogSegment) -> bool:
        """Replace the group; returns False if the log has changed there meanwhile."""
        log = self.log
        core = log.core
        # So the index agrees with the cleaned segment, even after a power cut.
        sync_sealed(log)
        with log.swapping:
            with core:
                at = next((n for n, s in enumerate(core.segments) if s is group[0]), 0)
                behind = at + len(group)
                # Retention or a truncation may have changed the log first.
                may_be = not self.is_void and core.segments[at:behind] == group
                if may_be and behind < len(core.segments):
                    end = core.segments[behind].base_offset
                else:
                    cleaned.close()
                    log.env.fs.unlink(cleaned.path)
                    return False
            SegmentSwap(log, group, cleaned, end).make()
            self._generation = log.unsaved.generation
            return True
