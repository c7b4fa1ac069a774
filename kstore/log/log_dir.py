"""A directory of logs, laid out as Kafka's: one directory per topic-partition, one lock, one index
environment. One process writes to it; any number read. It does not know topics beyond their names.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from itertools import takewhile
from typing import IO, TYPE_CHECKING

from kstore._fast.log.log_segment import LogSegment
from kstore.env import Clock, Env, SystemClock, SystemEnv
from kstore.log import errors
from kstore.log.index.environment import SharedEnvironment
from kstore.log.index.index_store import STAMP_NS, IndexStore, LogState, boot_id
from kstore.log.local import checkpoint, durability
from kstore.log.log import Log
from kstore.log.maintenance import Maintenance
from kstore.log.recovery import recovery, segment_index
from kstore.log.recovery.producer_state import restore_producers
from kstore.log.segments.segment_names import (
    DELETED_SUFFIX,
    directory_name,
    parse_directory_name,
    read_topic_id,
    segment_bases,
    write_topic_id,
)
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.private_files import PRIVATE_FOLDER, open_private
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.log.cursor import CommittedOffsets

__all__ = ["LogDir"]

LOCK_NAME = ".lock"
LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
REMOVED_SUFFIX = "-delete"  # of a partition's directory whose files are being removed
STRAY_SUFFIX = "-stray"  # of one that belongs to no topic, and may hold what somebody wants
_open_dirs: weakref.WeakSet[LogDir] = weakref.WeakSet()


class LogDir:
    """The logs below one path. Made by ``kstore.open_log_dir``; a context manager."""

    def __init__(
        self,
        path: str,
        *,
        read_only: bool,
        flush: str,
        flush_interval_ms: int,
        env: Env | None,
        config: LogConfig,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.flush_policy = FlushPolicy(flush)
        self.flush_interval_ms = flush_interval_ms
        self.env: Env = env or SystemEnv()
        clock = self.env.clock
        self.custom_clock: Clock | None = None if type(clock) is SystemClock else clock
        self.config = config
        self.retention_check_ms = 300_000
        """How often old segments are looked for (log.retention.check.interval.ms)."""
        self.producer_expiration_ms = 86_400_000
        """How long a producer's sequence numbers are kept (producer.id.expiration.ms)."""
        self.replicated = False
        """Whether logs opened from now on have their high watermark from whoever replicates them:
        it begins at the last one that was written down, not at the log's end.
        """
        self.damages = 0
        """Damaged parts of segments that became known."""
        self.repaired_parts = 0
        """Damaged parts that were written again from another replica."""
        self.lost_offsets = 0
        """Offsets that were in logs and were found lost."""
        self.on_damage: Callable[[Log], object] | None = None
        """Called, in any thread, with a log of which a damaged part became known."""
        self.closed = False
        self.opened_by = os.getpid()
        self._logs: dict[TopicPartition, Log] = {}
        self._mutex = threading.RLock()
        self._lock_file: IO[str] | None = None
        self._offsets: CommittedOffsets | None = None
        self._unsynced_names = True
        self.boot = boot_id()
        self.index: IndexStore | None = None
        self.wrong_indexes = 0
        self._was_closed = False
        self.maintenance = Maintenance(self)
        if read_only:
            if not os.path.isdir(path):
                raise errors.LogNotFoundError(f"{path} is no directory: nothing to read there")
            try:
                self.index = IndexStore(path, read_only=True)
            except OSError as error:
                raise errors.storage_error(error, f"opening {path}") from error
        else:
            self._open_for_writing()
        _open_dirs.add(self)

    def _open_for_writing(self) -> None:
        try:
            self.env.fs.mkdir(self.path, PRIVATE_FOLDER)
        except OSError as error:
            raise errors.storage_error(error, f"making {self.path}") from error
        self._take_lock()
        try:
            self.index = IndexStore(self.path, read_only=False, was_closed=self._was_closed)
            self.index.when_replaced(self.maintenance.note_index_lost)
            self._finish_deletions()
        except OSError as error:
            self._give_lock_back()
            raise errors.storage_error(error, f"opening {self.path}") from error
        except BaseException:
            self._give_lock_back()
            raise

    def _take_lock(self) -> None:
        path = os.path.join(self.path, LOCK_NAME)
        try:
            file = os.fdopen(open_private(path, LOCK_FLAGS), "a+", encoding="utf-8")
        except OSError as error:
            raise errors.storage_error(error, f"opening {path} for writing") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise errors.LogDirLockedError(self.path, holder) from None
        file.seek(0)
        self._was_closed = not file.read(1)  # who is killed leaves the name behind
        # Not what follows an option: that may be a password.
        words = takewhile(lambda word: not word.startswith("-"), sys.argv)
        holder = f"pid {os.getpid()} ({' '.join(words) or 'python'})\n"
        try:
            file.truncate(0)
            os.write(file.fileno(), os.fsencode(holder))
        except OSError as error:
            file.close()
            raise errors.storage_error(error, f"writing to {path}") from error
        self._lock_file = file

    def _give_lock_back(self) -> None:
        file, self._lock_file = self._lock_file, None
        if file is not None:
            file.truncate(0)
            file.close()

    def _finish_deletions(self) -> None:
        """Remove the directories of partitions that a crash left half deleted."""
        for name in self.env.fs.listdir(self.path):
            if name.endswith(REMOVED_SUFFIX):
                self.remove_taken(os.path.join(self.path, name))

    @property
    def committed_offsets(self) -> CommittedOffsets:
        """The offsets that cursors committed here."""
        if self._offsets is None:
            from kstore.log.cursor import CommittedOffsets

            self._offsets = CommittedOffsets(self)
        return self._offsets

    def now_ms(self) -> int:
        """The environment's time."""
        return self.env.clock.now_ms()

    # -- logs

    def log(
        self,
        topic: str,
        partition: int = 0,
        *,
        create: bool = True,
        config: LogConfig | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> Log:
        """The log of a topic-partition, opened or made. LogNotFoundError where there is none and
        ``create`` is false; ValueError for a name that Kafka would refuse.
        """
        key = TopicPartition(topic, partition)
        with self._mutex:
            self._check_open()
            log = self._logs.get(key)
            if log is None:
                with errors.told(f"opening {key}"):
                    log = self._open_log(key, create, config or self.config, topic_id)
                self._logs[key] = log
            elif config is not None:
                log.configure(config)
            return log

    def _open_log(
        self, key: TopicPartition, create: bool, config: LogConfig, topic_id: uuid.UUID | None
    ) -> Log:
        path = os.path.join(self.path, directory_name(key))
        fs = self.env.fs
        state = self._state(os.path.basename(path))
        try:
            stamp = fs.modified_ns(path)
        except FileNotFoundError:
            if self.read_only or not create:
                raise errors.LogNotFoundError(
                    f"{self.path} has no log of {key}: create it, or look at partitions()"
                ) from None
            topic_id = topic_id or self.env.random.uuid()
            self._make_folder(path, topic_id)
        else:
            if state is not None and state.listed_ns == stamp and any(state.topic_id):
                topic_id = uuid.UUID(bytes=state.topic_id)
            else:
                topic_id = self._found_topic_id(path, topic_id)
        log = Log(self, key, path, config, topic_id)
        log.core.follows_end = not self.replicated
        self._load(log, state)
        return log

    def _make_folder(self, path: str, topic_id: uuid.UUID) -> None:
        """A folder with the topic's id, or none at all: the next try would take a folder without
        an id as it is.
        """
        fs = self.env.fs
        self._unsynced_names = True
        try:
            fs.mkdir(path)
            write_topic_id(fs, path, topic_id, durable=self.flush_policy is FlushPolicy.ALWAYS)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove_taken(path)
            raise

    def sync_names(self) -> None:
        """Make the names of new partitions durable."""
        if self._unsynced_names:
            self._unsynced_names = False
            try:
                self.env.fs.fsync_dir(self.path)
            except OSError:
                self._unsynced_names = True
                raise

    def _found_topic_id(self, path: str, given: uuid.UUID | None) -> uuid.UUID | None:
        """The id in a directory that was there; one without an id is given one."""
        found = read_topic_id(self.env.fs, path)
        if found is None and given is not None and not self.read_only:
            write_topic_id(self.env.fs, path, given, durable=True)
            found = given
        return found

    def _state(self, name: str) -> LogState | None:
        return self.index.state(name) if self.index is not None else None

    def _load(self, log: Log, state: LogState | None) -> None:
        log.recovery = report = recovery.load(log, state)
        if self.read_only:
            durability.take_published(log)
            return
        if report.scanned_bytes or report.truncated_bytes or report.losses:
            log.note_dirty()
        recovery.tell_recovery(log)
        durability.begin(log)

    def open_logs(self) -> tuple[Log, ...]:
        """The logs that are open now."""
        return tuple(self._logs.values())

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log here."""
        self._check_open()
        with errors.told(f"listing {self.path}"):
            found = map(parse_directory_name, self.env.fs.listdir(self.path))
        return sorted(key for key in found if key is not None)

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the partition's metadata file, None where none was written."""
        with errors.told(f"reading the topic id of {key}"):
            return read_topic_id(self.env.fs, os.path.join(self.path, directory_name(key)))

    def delete(self, key: TopicPartition) -> None:
        """Delete a partition's log with all its files; nothing happens where there is none."""
        with self._mutex:
            taken = self.take_away(key)
            if taken is not None:
                self.remove_taken(taken)

    def take_away(self, key: TopicPartition) -> str | None:
        """The quick part of `delete`: there is no such log from now on. Returns the folder that is
        left for `remove_taken`; what nobody removes goes at the next start. None if there was none.
        """
        path = os.path.join(self.path, directory_name(key))
        with self._mutex:
            log = self._logs.pop(key, None)
            if log is not None:
                log.deleted = True
                self._shut(log)
            if self.index is not None:
                self.index.forget_log(os.path.basename(path))
            # A new log of this name may come at once: the files go under another name.
            removed = f"{path}.{uuid.uuid4().hex}{REMOVED_SUFFIX}"
            try:
                self.env.fs.replace(path, removed)
            except FileNotFoundError:
                return None
            return removed

    def remove_taken(self, path: str) -> None:
        """Remove the files of a log that `take_away` has taken; large ones take their time, and any
        thread may do it.
        """
        fs = self.env.fs
        for name in fs.listdir(path):
            fs.unlink(os.path.join(path, name))
        fs.rmdir(path)

    def put_aside(self, key: TopicPartition) -> str:
        """Rename a partition's folder, whose log is closed first; returns its new path. Nothing
        that is known of it remains, so a log of the same name begins anew.
        """
        path = os.path.join(self.path, directory_name(key))
        with self._mutex:
            log = self._logs.get(key)
            if log is not None:
                self.close_log(log)
            if self.index is not None:
                self.index.forget_log(os.path.basename(path))
            stray = f"{path}.{uuid.uuid4().hex}{STRAY_SUFFIX}"
            self.env.fs.replace(path, stray)
            return stray

    def flush(self) -> None:
        """Put everything in all open logs on the disk."""
        for log in tuple(self._logs.values()):
            log.flush()

    def close_log(self, log: Log) -> None:
        """Sync and checkpoint one log and close its files."""
        with self._mutex:
            self._logs.pop(log.topic_partition, None)
            try:
                if not self.read_only and self._is_unsaved(log):
                    self.maintenance.save([log], closing=True)
            finally:
                self._shut(log)

    def _is_unsaved(self, log: Log) -> bool:
        core = log.core
        return core.durable_offset < core.log_end_offset or self.maintenance.is_dirty(log)

    def _shut(self, log: Log) -> None:
        self.maintenance.forget(log)
        with log.core:
            log.core.close()
            log.closed = True
            for segment in log.core.segments:
                segment.close()
        log.tail.close()

    def close(self) -> None:
        """Sync and checkpoint all logs, close them, and give the lock back."""
        with self._mutex:
            if self.closed:
                return
            self.closed = True
            logs = self.open_logs()
            try:
                self.maintenance.stop()
                for log in logs:
                    log.core.close()  # no append comes after the checkpoint
                    log.on_durable = None
                if not self.read_only:
                    self.maintenance.save(filter(self._is_unsaved, logs), closing=True)
                    self.maintenance.remove_rest()
            except OSError as error:
                raise errors.storage_error(error, f"closing {self.path}") from error
            finally:
                for log in logs:
                    self._shut(log)
                self._logs.clear()
                if self.index is not None:
                    self.index.close()
                self._give_lock_back()

    def after_fork(self) -> None:
        """In a child process: this directory is the parent's, nothing of it may be used here. The
        lock's file is closed, or the lock would be held as long as the child lives.
        """
        self.closed = True
        self._mutex = threading.RLock()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
        self.maintenance.after_fork()
        for log in self.open_logs():
            log.core.after_fork()
            log.closed = True

    def __enter__(self) -> LogDir:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise errors.closed_error(f"the log directory {self.path}", self.opened_by)

    # -- what logs ask of their directory

    def note_dirty(self, log: Log) -> None:
        """Something in a log changed that has to get into the index environment."""
        if not self.read_only:
            self.maintenance.note_dirty(log)

    def checkpoint(self, log: Log) -> None:
        """Write a log's state to the index environment, durably, now."""
        if self.index is not None:
            checkpoint.write(self.index, [checkpoint.capture(log)])

    def note_damage(self, log: Log) -> None:
        """A damaged part of a log became known."""
        if self.on_damage is not None:
            self.on_damage(log)

    def forget_segments(self, log: Log, segments: list[LogSegment]) -> None:
        """Remove segments that a log no longer has; their files stay a while for readers."""
        for segment in segments:
            removed = segment.path + DELETED_SUFFIX
            self.env.fs.replace(segment.path, removed)
            log.pending_forgotten.append(segment.base_offset)
            self.maintenance.unlink_later(removed, log.config.file_delete_delay_ms)

    def forget_segment_index(self, log: Log, segments: list[LogSegment]) -> None:
        """Forget the index of segments whose files are about to be replaced."""
        if self.index is not None:
            bases = [segment.base_offset for segment in segments]
            checkpoint.forget_segments_now(log, self.index, bases)

    def forget_tail(self, log: Log, segment: LogSegment | None, base_offset: int) -> None:
        """Forget what the index has of a log from a segment on, before that is cut. The segment's
        own entries stay in memory.
        """
        if self.index is None:
            return
        if segment is not None:
            segment_index.load_whole(log, segment)
        bases = [s.base_offset for s in log.core.segments if s.base_offset >= base_offset]
        checkpoint.forget_segments_now(log, self.index, bases, below=base_offset)
        if segment is not None:
            segment.persisted = 0
            segment.complete = False

    def rescan(self, log: Log, segment: LogSegment, limit: int) -> None:
        """Take a segment's last stretch in again, after it was cut to offsets below ``limit``."""
        file = segment.handle_or_open()
        kept = tuple(d for d in segment.damages or () if d.end_position <= file.size_bytes)
        if segment.damages is not None:
            log.core.note_damages(segment, kept)
        if kept and kept[-1].end_position == file.size_bytes:
            limit = kept[-1].next_offset
        start = segment.rewind(file.size_bytes)
        log.core.epochs.truncate_from_end(segment.next_offset + 1)
        # The producers are made anew afterwards.
        report = recovery.RecoveryReport()
        end = recovery.scan_segment(log, segment, start, report, "all", limit=limit)
        file.truncate(end)

    def rebuild_producers(self, log: Log) -> None:
        """Read the producers' state anew, as of the log's end."""
        if log.core.producers.any_seen:
            restore_producers(log, log.core.log_end_offset)

    def note_wrong_index(self, path: str) -> None:
        """An index entry of a segment points elsewhere; its index is made anew."""
        from logging import getLogger

        self.wrong_indexes += 1
        getLogger("kstore.log").error(
            "the index of %s points to another batch: it is made anew from the segment", path
        )

    @property
    def index_damages(self) -> int:
        """How often the index turned out damaged, the whole of it or a part, and was made anew."""
        index = self.index
        found = index.replaced + index.damaged_values if index is not None else 0
        return found + self.wrong_indexes

    # -- reading what another process writes

    def refresh(self, log: Log) -> bool:
        """Take in what the writing process has added or removed; True if there was anything."""
        with log.core as core:
            before = (core.log_end_offset, core.high_watermark)
            if self._is_outdated(log):
                self._load(log, self._state(log.name))
            else:
                self._scan_tail(log)
                durability.take_published(log)
            return (core.log_end_offset, core.high_watermark) != before

    def _is_outdated(self, log: Log) -> bool:
        """Whether segments came or went, or what was read already was changed."""
        state = self.index.state(log.name) if self.index is not None else None
        if state is not None:
            if state.changes != log.changes:
                return True
            if state.log_start_offset > log.core.log_start_offset:
                log.core.set_log_start_offset(min(state.log_start_offset, log.core.log_end_offset))
        stamp = self.env.fs.modified_ns(log.path)
        if stamp == log.listed_ns:
            return False
        bases = segment_bases(self.env.fs.listdir(log.path))
        if time.time_ns() - stamp > STAMP_NS:
            log.listed_ns = stamp
        return bases != [segment.base_offset for segment in log.core.segments]

    def _scan_tail(self, log: Log) -> None:
        core = log.core
        active = core.active
        try:
            size = active.handle_or_open().refresh()
        except FileNotFoundError:
            return
        if size < active.size_bytes:
            self._load(log, self._state(log.name))
        elif size > active.size_bytes:
            core.scan(active, active.size_bytes, size)
            core.set_offsets(core.log_start_offset, active.next_offset, active.next_offset)


def _close_all() -> None:
    """At exit: what was appended gets its checkpoint."""
    with contextlib.ExitStack() as all_of_them:
        for log_dir in tuple(_open_dirs):
            log_dir.maintenance.at_exit = True
            all_of_them.callback(log_dir.close)


def _after_fork() -> None:
    SharedEnvironment.after_fork()
    for log_dir in tuple(_open_dirs):
        log_dir.after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
