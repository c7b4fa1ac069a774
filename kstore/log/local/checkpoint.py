"""Writes a log's state from memory to the index environment: index pages, the log's state, producer
snapshots. A checkpoint is captured under the log's lock and written without it; a truncation in
between invalidates it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kstore._fast.log.log_segment import LogSegment
from kstore.log.index.index_store import (
    ENTRIES_PER_PAGE,
    STAMP_NS,
    IndexStore,
    LogState,
    SegmentState,
)

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog

__all__ = ["Checkpoint", "capture", "forget_segments_now", "write", "write_now"]

# Packing more producers than this would delay appends noticeably.
_FEW_PRODUCERS = 256


@dataclass
class Checkpoint:
    """One log's part of a write to the environment."""

    log: LocalLog
    generation: int
    state: LogState
    pages: list[tuple[int, int, bytes]] = field(default_factory=list)
    persisted: list[tuple[LogSegment, int, int]] = field(default_factory=list)
    snapshots: dict[int, bytes] = field(default_factory=dict)
    forgotten: list[int] = field(default_factory=list)


def capture(log: LocalLog, *, closing: bool = False) -> Checkpoint:
    """Capture what has changed in a log since the last checkpoint."""
    core = log.core
    with core:
        core.take_dirty()
        pages: list[tuple[int, int, bytes]] = []
        persisted = []
        left_out = log.swapping.without_index
        for segment in core.segments:
            if segment.base_offset in left_out:
                continue
            if not segment.complete and (segment.entry_count > segment.persisted or segment.sealed):
                pages += _pages(segment)
                persisted.append((segment, segment.entry_count, segment.persisted))
        point = Checkpoint(log, log.unsaved.generation, _state(log), pages, persisted)
        point.snapshots, log.unsaved.snapshots = log.unsaved.snapshots, {}
        point.forgotten, log.unsaved.forgotten = log.unsaved.forgotten, []
        producers = core.producers
        if producers.any_seen and (closing or len(producers) <= _FEW_PRODUCERS):
            point.snapshots[core.log_end_offset] = producers.pack()
        return point


def _pages(segment: LogSegment) -> list[tuple[int, int, bytes]]:
    found = []
    start = max(segment.first_entry, segment.persisted // ENTRIES_PER_PAGE * ENTRIES_PER_PAGE)
    while start < segment.entry_count:
        stop = min((start // ENTRIES_PER_PAGE + 1) * ENTRIES_PER_PAGE, segment.entry_count)
        first = segment.offset_of_entry(start)
        found.append((segment.base_offset, first, segment.packed(start, stop)))
        start = stop
    return found


def _state(
    log: LocalLog, *, below: int | None = None, without: frozenset[int] = frozenset()
) -> LogState:
    """A log's state now; or its state below a segment, or without the indexes of some segments."""
    core = log.core
    active = core.active
    without |= log.swapping.without_index
    sealed = [
        SegmentState(
            s.base_offset, s.size_bytes, s.next_offset, s.max_timestamp, s.first_timestamp,
            s.persisted if s.complete else s.entry_count,
        )
        for s in core.segments
        if s.sealed and s.base_offset not in without and (below is None or s.base_offset < below)
    ]  # fmt: skip
    durable_base, durable_position, durable_offset = log.disk.reached
    state = LogState(
        topic_id=log.topic_id.bytes if log.topic_id else bytes(16),
        boot=log.directory.boot,
        changes=log.unsaved.changes,
        log_start_offset=core.log_start_offset,
        high_watermark=core.high_watermark,
        durable_base=durable_base,
        durable_position=durable_position,
        durable_offset=durable_offset,
        active_base=active.base_offset,
        position=active.size_bytes,
        next_offset=core.log_end_offset,
        entries=active.entry_count,
        max_timestamp=active.max_timestamp,
        first_timestamp=active.first_timestamp,
        bytes_since_entry=min(active.bytes_since_entry, 2**40),
        cleaned_offset=log.cleaned_offset,
        listed_ns=_stamp(log) if below is None else 0,  # files will be removed
        has_producers=core.producers.any_seen,
        sealed=sealed,
        epochs=core.epochs.as_list(),
        hole_from=log.hole_from,
    )
    if below is not None and below <= active.base_offset:
        state.active_base = state.next_offset = below
        state.position = state.entries = state.bytes_since_entry = 0
        state.max_timestamp = state.first_timestamp = -1
        state.epochs = [(epoch, start) for epoch, start in state.epochs if start < below]
        if durable_base >= below:
            state.durable_base = state.durable_offset = below
            state.durable_position = 0
    if log.lost_until > state.next_offset:
        state.lost_until, state.lost_epochs = log.lost_until, list(log.lost_epochs)
    return state


def _stamp(log: LocalLog) -> int:
    """The timestamp of the log's directory; 0 if a change may have the same timestamp, or if it
    contains the cleaner's files.
    """
    if log.cleaning.locked() or log.swapping.unfinished is not None:
        return 0
    stamp = log.env.fs.modified_ns(log.path)
    return stamp if time.time_ns() - stamp > STAMP_NS else 0


def write(store: IndexStore, points: list[Checkpoint]) -> None:
    """Write checkpoints in one durable transaction; invalid ones are skipped."""
    for point in store.change(lambda transaction: _write(store, transaction, points)):
        for segment, entries, before in point.persisted:
            if segment.persisted < before:
                continue  # its index was lost meanwhile: everything must be written again
            segment.persisted = max(segment.persisted, entries)
            if segment.sealed and segment.entry_count == entries:
                segment.complete = True
                segment.drop_entries(entries)


def _write(store: IndexStore, transaction: Any, points: list[Checkpoint]) -> list[Checkpoint]:
    written = []
    for point in points:
        if point.generation != point.log.unsaved.generation or point.log.deleted:
            continue
        name = point.log.name
        for base in point.forgotten:
            store.forget_pages(transaction, name, base)
        store.put_pages(transaction, name, point.pages)
        store.put_state(transaction, name, point.state)
        if point.snapshots:
            for offset, snapshot in point.snapshots.items():
                store.put_snapshot(transaction, name, offset, snapshot)
            keep = {s.base_offset for s in point.log.core.segments} | set(point.snapshots)
            store.forget_snapshots(transaction, name, keep=keep)
        written.append(point)
    return written


def write_now(log: LocalLog) -> None:
    """Write a log's state to the index environment, durably, now."""
    write(log.directory.index, [capture(log)])


def forget_segments_now(log: LocalLog, bases: list[int], *, below: int | None = None) -> None:
    """Delete the index of segments whose files are about to change, durably, before they do.

    ``below``: a truncation; nothing at this segment or after it is known any more.
    """
    store = log.directory.index
    with log.core as core:
        log.unsaved.generation += 1
        log.unsaved.changes += 1
        state = _state(log, below=below, without=frozenset(bases))
        producers = core.producers
        # A checkpoint that was captured before becomes invalid, with its snapshots.
        saves = below is None and producers.any_seen and len(producers) <= _FEW_PRODUCERS
        snapshot = producers.pack() if saves else None

    def forget(transaction: Any) -> None:
        for base in bases:
            store.forget_pages(transaction, log.name, base)
        if below is not None:
            store.forget_snapshots(transaction, log.name, above=below)
        if snapshot is not None:
            store.put_snapshot(transaction, log.name, state.next_offset, snapshot)
        store.put_state(transaction, log.name, state)

    store.change(forget)
