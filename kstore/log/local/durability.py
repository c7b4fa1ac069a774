"""The durable end of a log: syncs, and with flush="always" the notification of waiters in this
process and of readers in other processes. maintenance.py decides when to sync.

With flush="always" only durable records are visible. But a reader in another process reads the
segment files, which are ahead of the disk: so each sync writes the durable end to a small file next
to them, which readers check. It is valid until the machine restarts: after that everything in the
segments is durable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.log import errors

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = [
    "begin", "forget_durable", "publish", "sync_sealed", "sync_until", "take_published",
]  # fmt: skip

DURABLE_NAME = "kstore.durable"
"""The boot id (16 bytes) and the durable end (8 bytes, big-endian)."""
_BOOT_BYTES = 16
_SIZE = _BOOT_BYTES + 8


def sync_until(log: LocalLog, offset: int) -> None:
    """Return when every record below ``offset`` is durable. Concurrent callers share one
    fdatasync.
    """
    core = log.core
    while core.durable_offset < offset and log.disk.group.wait(offset):
        try:
            _sync(log)
        finally:
            log.disk.group.done(core.durable_offset)
        offset = min(offset, core.log_end_offset)  # the log may have been truncated meanwhile


def forget_durable(log: LocalLog, base_offset: int, end_offset: int) -> None:
    """The log was truncated in the segment with this base offset, to this end."""
    log.core.durable_offset = min(log.core.durable_offset, end_offset)
    log.disk.group.rewind(end_offset)
    if log.disk.reached[2] > end_offset:
        log.disk.reached = (base_offset, 0, base_offset)


def _show_durable(log: LocalLog) -> None:
    """With flush="always", notify the waiters for durable records."""
    if not log.core.shows_durable:
        return
    log.wake()
    if log.disk.on_durable is not None:
        log.disk.on_durable()


def _sync(log: LocalLog) -> None:
    """Make everything appended so far durable. After a failure nothing is synced any more."""
    if log.disk.failure is not None:
        raise errors.lost_sync(log.disk.failure, str(log.topic_partition))
    with log.core as core:
        durable = core.durable_offset
        active = core.active
        target = core.log_end_offset
        reached = (active.base_offset, active.size_bytes, target)
        generation = log.unsaved.generation
        behind = [s for s in core.segments if s.next_offset > durable and s.size_bytes]
        files = [segment.handle_or_open() for segment in behind]
        newest = _newest(behind)
    try:
        for file in files:
            file.sync()
        if log.disk.unsynced_names:
            _sync_names(log)
    except OSError as error:
        # The system may have dropped what it could not write: a later fdatasync that succeeds would
        # prove nothing.
        log.disk.failure = error
        raise errors.lost_sync(error, str(log.topic_partition)) from error
    with log.core as core:
        if generation == log.unsaved.generation:  # nothing was truncated meanwhile
            log.disk.reached = reached
            log.disk.timestamp = max(log.disk.timestamp, newest)
            core.set_durable_offset(target)
            publish(log, core.durable_offset)
    log.note_dirty()
    _show_durable(log)


def sync_sealed(log: LocalLog) -> None:
    """Make the sealed segments durable."""
    with log.core as core:
        durable = core.durable_offset
        behind = [s for s in core.segments[:-1] if s.next_offset > durable and s.size_bytes]
        files = [segment.handle_or_open() for segment in behind]
        generation = log.unsaved.generation
    if not files or log.disk.failure is not None:
        return
    try:
        for file in files:
            file.sync()
    except OSError as error:
        log.disk.failure = error
        raise
    with log.core as core:
        if generation == log.unsaved.generation and behind[-1].next_offset > core.durable_offset:
            last = behind[-1]
            log.disk.reached = (last.base_offset, last.size_bytes, last.next_offset)
            log.disk.timestamp = max(log.disk.timestamp, _newest(behind))
            core.set_durable_offset(last.next_offset)
            publish(log, core.durable_offset)
    _show_durable(log)


def _newest(segments: Iterable[LogSegment]) -> int:
    return max((segment.max_timestamp for segment in segments), default=-1)


def _sync_names(log: LocalLog) -> None:
    log.disk.unsynced_names = False
    try:
        log.env.fs.fsync_dir(log.path)
        log.directory.sync_names()
    except OSError:
        log.disk.unsynced_names = True
        raise


# -- readers in other processes


def begin(log: LocalLog) -> None:
    """A log was opened for writing: with flush="always" its content is made durable before it
    becomes visible, because it may have been visible before its process was killed.
    """
    path = os.path.join(log.path, DURABLE_NAME)
    fs = log.env.fs
    if not log.core.shows_durable:
        with suppress(FileNotFoundError):
            fs.overwrite(path, bytes(_SIZE))  # from an earlier flush="always": no limit any more
        return
    if log.core.durable_offset < log.core.log_end_offset:
        sync_until(log, log.core.log_end_offset)
    log.disk.timestamp = _newest(log.core.segments)
    content = _content(log, log.core.durable_offset)
    try:
        fs.overwrite(path, content)
    except FileNotFoundError:
        fs.write_file(path, content, durable=False)


def publish(log: LocalLog, end_offset: int) -> None:
    """Publish to readers in other processes how much of the log they may read."""
    if not log.core.shows_durable:
        return
    path = os.path.join(log.path, DURABLE_NAME)
    try:
        log.env.fs.overwrite(path, _content(log, end_offset))
    except FileNotFoundError:
        return  # created by `begin`
    except OSError as error:
        raise errors.storage_error(error, f"reporting the end of {log.topic_partition}") from error


def _content(log: LocalLog, end_offset: int) -> bytes:
    return log.directory.boot + end_offset.to_bytes(8, "big")


def take_published(log: LocalLog) -> None:
    """For a log that is open for reading only: limit it to what its writer reports as durable."""
    core = log.core
    try:
        content = log.env.fs.read_file(os.path.join(log.path, DURABLE_NAME))
    except FileNotFoundError:
        content = b""
    core.shows_durable = len(content) == _SIZE and content[:_BOOT_BYTES] == log.directory.boot
    if core.shows_durable:
        core.durable_offset = int.from_bytes(content[_BOOT_BYTES:], "big")
    core.set_offsets(core.log_start_offset, core.log_end_offset, core.log_end_offset)
