"""The background work of a log dir, in threads that mostly wait without the GIL: write checkpoints,
flush by interval, sync sealed segments, enforce retention, delete files. The thread starts with the
first append and sleeps when there is nothing to do.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from kstore._fast.log.log_segment import LogSegment
from kstore.log.errors import LogError
from kstore.log.local import checkpoint, durability
from kstore.log.recovery import segment_index
from kstore.log.retention.retention import enforce
from kstore.log.settings import FlushPolicy

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog
    from kstore.log.local.log_dir_state import LogDirState

__all__ = ["Maintenance"]

TICK_SECONDS = 1.0
# After this number of logs, the other threads of the process get a turn.
LOGS_AT_ONCE = 16
SYNCS_AT_ONCE = 16
_UNLIMITED = 2**63 - 1


class Maintenance:
    """The background work of one writable log dir."""

    def __init__(self, directory: LogDirState, open_logs: Callable[[], Iterable[LocalLog]]) -> None:
        self._dir = directory
        self._open_logs = open_logs
        self._interval = TICK_SECONDS
        if directory.flush_policy is FlushPolicy.INTERVAL:
            self._interval = min(TICK_SECONDS, directory.flush_interval_ms / 1000)
        self._dirty: dict[LocalLog, None] = {}
        """In the order in which they were noted; changed by atomic operations, without a lock."""
        self._unlinks: deque[tuple[float, str]] = deque()
        self._sync_waits: dict[LocalLog, list[tuple[int, Callable[[], object]]]] = {}
        self._wake = threading.Event()
        self._sync_wake = threading.Event()
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._last_retention = time.monotonic()
        self.last_error: Exception | None = None
        self._index_lost = False
        self._without_index: deque[tuple[LocalLog, LogSegment]] = deque()
        self.look_after: Callable[[], None] | None = None
        """For a shared log dir: makes sure that one process does the maintenance."""
        self.at_exit = False  # the interpreter exits: no more threads can be started

    # -- called from any thread, sometimes with a log's lock held

    def note_dirty(self, log: LocalLog) -> None:
        """A log has something for the index environment, or for the disk."""
        self._dirty[log] = None
        if not self._wake.is_set():
            self._start("kstore-maintenance", self._run)
            self._wake.set()

    def unlink_later(self, path: str, delay_ms: int) -> None:
        """Delete a file after a while: readers may still want to open it."""
        if not self._dir.keeper:
            return
        self._unlinks.append((time.monotonic() + delay_ms / 1000, path))
        self._start("kstore-maintenance", self._run)
        self._wake.set()

    def note_index_lost(self) -> None:
        """The index was damaged and is empty now: write what is in memory, rebuild the rest."""
        self._index_lost = True
        self._start("kstore-maintenance", self._run)
        self._wake.set()

    def sync_for(self, log: LocalLog, offset: int, callback: Callable[[], object]) -> None:
        """Sync a log in a separate thread and call back; calls meanwhile share the next sync."""
        with self._guard:
            self._sync_waits.setdefault(log, []).append((offset, callback))
        self._start("kstore-flush", self._run_syncs)
        self._sync_wake.set()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        if name in self._threads or self._stop.is_set():
            return
        with self._guard:
            if name not in self._threads:
                self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
                self._threads[name].start()

    # -- the threads

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.look_after is None:
                self._wake.wait(self._dir.retention_check_ms / 1000)
            # Everything that arrives within one interval is written together.
            if self._stop.wait(self._interval):
                return
            self._wake.clear()
            try:
                self.tick()
            except (OSError, LogError) as error:
                self.last_error = error  # a full disk, for example: the next tick tries again
                self._dir.note_error(error)
            if self._unlinks or self._dirty or self._without_index:
                self._wake.set()

    def tick(self) -> None:
        """Do what is due now."""
        if self.look_after is not None:
            self.look_after()
            if not self._dir.keeper:
                self._flush_own()
                return
            for log in self._open_logs():
                log.core.look()
        if self._index_lost:
            self._index_lost = False
            for log in self._open_logs():
                self._without_index += [(log, each) for each in segment_index.note_lost(log)]
        noted, self._dirty = self._dirty, {}
        dirty = [log for log in noted if not log.closed]
        try:
            unsaved = self.save(dirty)
        except (OSError, LogError) as error:
            unsaved = dict.fromkeys(dirty, error)
        except BaseException:
            self._dirty.update(dict.fromkeys(dirty))
            raise
        self._dirty.update(dict.fromkeys(unsaved))
        problems = [*unsaved.values()]
        now = time.monotonic()
        if now - self._last_retention >= self._dir.retention_check_ms / 1000:
            self._last_retention = now
            for log in self._open_logs():
                try:
                    self._enforce(log)
                except (OSError, LogError) as error:  # of this log; the others may free space
                    problems.append(error)
        self._unlink(now, {log.path for log in unsaved})
        if problems:  # after retention, which may free the space that was missing
            raise problems[0]
        self._make_indexes(now)

    def share(self, look_after: Callable[[], None]) -> None:
        """Other processes also write to the log dir: check on it periodically."""
        self.look_after = look_after
        self._start("kstore-maintenance", self._run)

    def _flush_own(self) -> None:
        """If another process does the rest: flush what this one wrote."""
        noted, self._dirty = self._dirty, {}
        for log in noted:
            log.core.take_dirty()
            if self._dir.flush_policy is not FlushPolicy.OS and not log.closed:
                durability.sync_until(log, log.core.log_end_offset)

    def _make_indexes(self, began: float) -> None:
        """Rebuild lost indexes, for a while: reads rebuild those that they need."""
        while self._without_index and time.monotonic() - began < TICK_SECONDS / 2:
            log, segment = self._without_index.popleft()
            if not log.closed and segment in log.core.segments:
                segment_index.load_whole(log, segment)

    def _enforce(self, log: LocalLog) -> None:
        log.check_writable()
        enforce(log, self._dir.now_ms())
        with log.core:
            log.core.producers.expire(self._dir.now_ms(), self._dir.producer_expiration_ms)

    def save(self, logs: Iterable[LocalLog]) -> dict[LocalLog, OSError | LogError]:
        """Sync what the flush policy requires, then write checkpoints. Returns the logs that
        failed, with their errors. Raises LogStorageError if the index can't be written.
        """
        points, failed = [], {}
        for count, log in enumerate(logs):
            try:
                points.append(self._point_of(log))
            except (OSError, LogError) as error:
                failed[log] = error
            if count % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                time.sleep(0.001)
        if points:
            checkpoint.write(self._dir.index, points)
        return failed

    def _point_of(self, log: LocalLog, *, closing: bool = False) -> checkpoint.Checkpoint:
        """Sync what the flush policy requires; the log's state for a checkpoint."""
        log.swapping.try_to_settle()
        if closing or self._must_flush(log):
            durability.sync_until(log, log.core.log_end_offset)
        else:
            durability.sync_sealed(log)
        return checkpoint.capture(log, closing=closing)

    def save_closing(self, logs: list[LocalLog]) -> None:
        """Sync logs that are being closed, and write their last checkpoints."""
        if not self._dir.keeper:
            for log in logs:
                durability.sync_until(log, log.core.log_end_offset)
            return
        if len(logs) > SYNCS_AT_ONCE and not self.at_exit:
            self._sync_together(logs)
        points = [self._point_of(log, closing=True) for log in logs]
        if points:
            checkpoint.write(self._dir.index, points)

    def _sync_together(self, logs: list[LocalLog]) -> None:
        """Sync many logs: the file system commits simultaneous requests at once."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(SYNCS_AT_ONCE, "kstore-sync") as pool:
            for done in [
                pool.submit(durability.sync_until, log, log.core.log_end_offset) for log in logs
            ]:
                done.result()

    def _must_flush(self, log: LocalLog) -> bool:
        if self._dir.flush_policy is not FlushPolicy.OS:
            return True
        core, config = log.core, log.config
        if core.log_end_offset - core.durable_offset >= config.flush_messages:
            return True
        if config.flush_ms == _UNLIMITED:
            return False
        now = time.monotonic()
        if now - log.disk.flushed_at < config.flush_ms / 1000:
            self._dirty[log] = None  # it becomes due later
            return False
        log.disk.flushed_at = now
        return True

    def _unlink(self, now: float, unsaved: Collection[str] = ()) -> None:
        """Delete the files that are due, except in the folders of ``unsaved`` logs: the index still
        names them, and without them their records would seem to be lost.
        """
        for _ in range(len(self._unlinks)):
            row = when, path = self._unlinks.popleft()
            if when > now or os.path.dirname(path) in unsaved:
                self._unlinks.append(row)
                continue
            try:
                self._dir.env.fs.unlink(path)
            except FileNotFoundError:
                pass
            except OSError:
                self._unlinks.append(row)
                raise

    def _run_syncs(self) -> None:
        while not self._stop.is_set():
            self._sync_wake.wait()
            self._sync_wake.clear()
            with self._guard:
                waits, self._sync_waits = self._sync_waits, {}
            for log, rows in waits.items():
                try:
                    durability.sync_until(log, max(offset for offset, _ in rows))
                except (OSError, LogError) as error:
                    self.last_error = error
                    self._dir.note_error(error)
                for _offset, callback in rows:
                    callback()

    # -- close

    def stop(self) -> None:
        """Stop the threads."""
        self._stop.set()
        self._wake.set()
        self._sync_wake.set()
        for thread in self._threads.values():
            if thread is not threading.current_thread():
                thread.join()

    def remove_rest(self) -> None:
        """Delete now what was to be deleted later. After the last checkpoint: otherwise files that
        the index still names would seem to be lost.
        """
        self._unlink(float("inf"))

    def after_fork(self) -> None:
        """In a child process: there are no threads, and nothing belongs to this process."""
        self._stop.set()
        self._threads.clear()
        self._unlinks.clear()

    def is_dirty(self, log: LocalLog) -> bool:
        """Whether a log has something that is not in the index environment."""
        return log in self._dirty

    def forget(self, log: LocalLog) -> None:
        """A log was closed or deleted."""
        self._dirty.pop(log, None)
