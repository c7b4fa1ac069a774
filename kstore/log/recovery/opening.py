"""Opens a log, and applies the changes of another process to a log that is open for reading."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kstore.log.index.index_store import STAMP_NS, LogState
from kstore.log.local import durability
from kstore.log.local.recovery_report import RecoveryReport
from kstore.log.recovery.recovery import load
from kstore.log.segments.segment_names import segment_bases

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog

__all__ = ["begin", "open_log", "refresh"]

TRIES = 20


def open_log(log: LocalLog, state: LogState | None) -> None:
    """Bring a log to the state of its files; ``state`` is the index's state of it. Raises OSError
    if the files can't be read (or truncated).
    """
    log.recovery = load(log, state) if not log.read_only else _load_beside(log, state)
    begin(log)


def _load_beside(log: LocalLog, state: LogState | None) -> RecoveryReport:
    """Load a log whose writer may remove segments meanwhile; repeat it if one has disappeared."""
    fs = log.env.fs
    for _ in range(TRIES):
        try:
            stamp = fs.modified_ns(log.path)
            report = load(log, state)
            if fs.modified_ns(log.path) != stamp or time.time_ns() - stamp <= STAMP_NS:
                for segment in log.core.segments[:-1]:
                    if not segment.is_open:
                        fs.file_size(segment.path)
        except FileNotFoundError:
            state = log.directory.index.state(log.name)
        else:
            return report
    return load(log, state)


def begin(log: LocalLog) -> None:
    """Do the steps that follow after a log is loaded."""
    report = log.recovery
    if log.read_only:
        durability.take_published(log)
        return
    if report.scanned_bytes or report.truncated_bytes or report.losses:
        log.note_dirty()
    _tell_recovery(log)
    durability.begin(log)


def _tell_recovery(log: LocalLog) -> None:
    """Log what opening a log found, and count what is lost."""
    report = log.recovery
    if log.read_only or not (report.scanned_bytes or report.truncated_bytes or report.losses):
        return
    import logging

    logger = logging.getLogger("kstore.log")
    log.directory.lost_offsets += report.lost_offsets
    log.lost = list(report.losses)
    for loss in report.losses:
        logger.error(
            "%s: %s; its log continues at %d", log.topic_partition, loss, log.core.log_end_offset
        )
    if report.losses:
        log.directory.note_damage(log.topic_partition)
    level = logging.WARNING if report.truncated_bytes else logging.INFO
    logger.log(level, "%s: opening it found %s", log.topic_partition, report)


def refresh(log: LocalLog) -> bool:
    """Apply what the writing process has added or removed; returns whether there was anything."""
    with log.core as core:
        before = (core.log_end_offset, core.high_watermark)
        if _is_outdated(log):
            open_log(log, log.directory.index.state(log.name))
        else:
            _scan_tail(log)
            durability.take_published(log)
        return (core.log_end_offset, core.high_watermark) != before


def _is_outdated(log: LocalLog) -> bool:
    """Whether segments were added or removed, or data that was already read has changed."""
    core = log.core
    state = log.directory.index.state(log.name)
    if state is not None:
        if state.changes != log.unsaved.changes:
            return True
        if state.log_start_offset > core.log_start_offset:
            core.set_log_start_offset(min(state.log_start_offset, core.log_end_offset))
    stamp = log.env.fs.modified_ns(log.path)
    if stamp == log.listed_ns:
        return False
    bases = segment_bases(log.env.fs.listdir(log.path))
    if time.time_ns() - stamp > STAMP_NS:
        log.listed_ns = stamp
    return bases != [segment.base_offset for segment in core.segments]


def _scan_tail(log: LocalLog) -> None:
    core = log.core
    active = core.active
    try:
        size = active.handle_or_open().refresh()
    except FileNotFoundError:
        return
    if size < active.size_bytes:
        open_log(log, log.directory.index.state(log.name))
    elif size > active.size_bytes:
        core.scan(active, active.size_bytes, size)
        core.set_offsets(core.log_start_offset, active.next_offset, active.next_offset)
