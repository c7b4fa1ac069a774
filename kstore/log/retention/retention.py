"""Shortens a log from its start: retention by time, size and log start offset, and deletion before
an offset. cleaner.py has compaction, truncation.py truncates the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.log.errors import LogError
from kstore.log.local import checkpoint
from kstore.log.local.start_offset import write_start_offset
from kstore.log.segments.segment_names import DELETED_SUFFIX

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = ["delete_before", "delete_many_before", "enforce", "remove_dropped"]


def enforce(log: LocalLog, now_ms: int) -> int:
    """Delete the segments that are too old, too large in total, or before the log start; returns
    their number.
    """
    with log.swapping:
        with log.core:
            count = 0
            if log.config.deletes:
                count = max(_expired(log, now_ms), _oversized(log))
            count = max(count, _before_start(log))
            segments = log.core.segments[:count]
            if count and count == len(log.core.segments):
                log.roll_for_append(log.core.log_end_offset, reserves=False)  # the disk may be full
            _drop_first(log, segments)
        remove_dropped(log)
    return count


def _deletable(log: LocalLog, count: int) -> bool:
    """Whether the segment with this number may be deleted: it has records, all below the high
    watermark.
    """
    segment = log.core.segments[count]
    has_been = segment.size_bytes > 0 or segment.sealed  # the cleaner may have emptied it
    return has_been and segment.next_offset <= log.core.high_watermark


def _expired(log: LocalLog, now_ms: int) -> int:
    if log.config.retention_ms < 0:
        return 0
    count = 0
    for segment in log.core.segments:
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if now_ms - newest <= log.config.retention_ms or not _deletable(log, count):
            break
        count += 1
    return count


def _oversized(log: LocalLog) -> int:
    if log.config.retention_bytes < 0:
        return 0
    excess = log.size_bytes - log.config.retention_bytes
    count = 0
    for segment in log.core.segments:
        if excess - segment.size_bytes < 0 or not _deletable(log, count):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _before_start(log: LocalLog) -> int:
    following = log.core.segments[1:]
    return sum(1 for segment in following if segment.base_offset <= log.core.log_start_offset)


def _drop_first(log: LocalLog, segments: list[LogSegment]) -> None:
    if not segments:
        return
    core = log.core
    core.shift_segments(core.segments[len(segments) :])
    if core.segments[0].base_offset > core.log_start_offset:
        core.set_log_start_offset(core.segments[0].base_offset)
    core.epochs.truncate_from_start(core.log_start_offset)
    core.producers.drop_aborted_before(core.log_start_offset)
    log.unsaved.forgotten += [segment.base_offset for segment in segments]
    log.unremoved += [segment.path for segment in segments]
    log.note_dirty()


def remove_dropped(log: LocalLog) -> None:
    """Remove the files of segments that the log no longer has, also if that has failed before. The
    renamed files stay a while for readers. Appends do not wait for this, because the core's lock is
    not held, except for a file at an offset that the log can still reach: a new segment could get
    its name.
    """
    while log.unremoved:
        path = log.unremoved[0]
        if path < log.core.segments[0].path:
            _remove(log, path)
            continue
        with log.core:
            if path in log.unremoved:
                _remove(log, path)


def _remove(log: LocalLog, path: str) -> None:
    with suppress(FileNotFoundError):
        log.env.fs.replace(path, path + DELETED_SUFFIX)
        log.upkeep.unlink_later(path + DELETED_SUFFIX, log.config.file_delete_delay_ms)
    log.unremoved.remove(path)


def delete_before(log: LocalLog, offset: int, *, durable: bool = True) -> None:
    """Move the log start offset to ``offset`` and delete the segments that are entirely before it.

    ``durable``: the change survives a crash. Not needed if the caller repeats it after a crash.
    """
    if _move_start(log, offset):
        if durable:
            write_start_offset(log)
            log.start_is_saved = True
            checkpoint.write_now(log)
        log.wake()


def delete_many_before(logs: Sequence[tuple[LocalLog, int]]) -> list[LogError | OSError | None]:
    """Move the log start offsets of logs in one log dir, so that the change survives a crash.
    Returns the error of each log, or None. The index environment gets all of them in one
    transaction, which is synced. For several logs, the files that replace a lost index are not
    synced.
    """
    problems: list[LogError | OSError | None] = []
    moved = []
    for log, offset in logs:
        problem: LogError | OSError | None = None
        try:
            log.check_keeper()
            if _move_start(log, offset):
                write_start_offset(log, durable=len(logs) == 1)
                log.start_is_saved = True
                moved.append(log)
        except (LogError, OSError) as error:
            problem = error
        problems.append(problem)
    if moved:
        checkpoint.write(moved[0].directory.index, [checkpoint.capture(log) for log in moved])
    for log in moved:
        log.wake()
    return problems


def _move_start(log: LocalLog, offset: int) -> bool:
    """Move the log start offset in memory, and rename the segments that are entirely before it.
    Returns False if the log already starts there, and a file has that offset.
    """
    core = log.core
    with log.swapping:
        with core:
            if offset > core.high_watermark:
                raise log.out_of_range(offset)
            if offset > core.log_start_offset:
                log.start_is_saved = False
                core.set_log_start_offset(offset)
                core.epochs.truncate_from_start(offset)
                core.producers.drop_aborted_before(offset)
                _drop_first(log, core.segments[: _before_start(log)])
                log.note_dirty()
            elif log.start_is_saved:
                return False
        remove_dropped(log)
    return True
