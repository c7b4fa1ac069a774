"""A directory of logs, laid out as Kafka's: one directory per topic-partition, one lock, one index
environment. One process writes to it; any number read. It does not know topics beyond their names.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import sys
import threading
import uuid
import weakref
from typing import IO, Any

from kstore._fast.log_segment import LogSegment
from kstore._fast.log_view import LogView
from kstore.env import Clock, Env, SystemClock, SystemEnv
from kstore.log import errors
from kstore.log.log import Log
from kstore.log.recovery import RecoveryReport, scan_segment
from kstore.log.segment import (
    DELETED_SUFFIX,
    SegmentOpener,
    directory_name,
    new_segment,
    parse_directory_name,
    read_topic_id,
    segment_bases,
    segment_path,
    write_topic_id,
)
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.types import TopicPartition

__all__ = ["LogDir"]

LOCK_NAME = ".lock"

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
        self.closed = False
        self._logs: dict[TopicPartition, Log] = {}
        self._mutex = threading.RLock()
        self._lock_file: IO[str] | None = None
        if read_only:
            if not os.path.isdir(path):
                raise errors.LogNotFoundError(f"{path} is no directory: nothing to read there")
        else:
            self._open_for_writing()

    def _open_for_writing(self) -> None:
        try:
            self.env.fs.mkdir(self.path)
        except OSError as error:
            raise errors.storage_error(error, f"making {self.path}") from error
        self._take_lock()

    def _take_lock(self) -> None:
        path = os.path.join(self.path, LOCK_NAME)
        try:
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (kept as long as the lock)
        except OSError as error:
            raise errors.storage_error(error, f"opening {path} for writing") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise errors.LogDirLockedError(self.path, holder) from None
        file.truncate(0)
        file.write(f"pid {os.getpid()} ({' '.join(sys.argv) or 'python'})\n")
        file.flush()
        self._lock_file = file

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
        try:
            names = fs.listdir(path)
        except FileNotFoundError:
            if self.read_only or not create:
                raise errors.LogNotFoundError(
                    f"{self.path} has no log of {key}: create it, or look at partitions()"
                ) from None
            topic_id = topic_id or self.env.random.uuid()
            fs.mkdir(path)
            write_topic_id(fs, path, topic_id)
            names = []
        log = Log(self, key, path, config, topic_id or read_topic_id(fs, path))
        self._load(log, names)
        return log

    def _load(self, log: Log, names: list[str]) -> None:
        core = log.core
        opener = log.opener
        segments = []
        now = self.now_ms()
        for base in segment_bases(names):
            segment = LogSegment(base, segment_path(log.path, base), opener, created_ms=now)
            segments.append(segment)
        if not segments and not self.read_only:
            segments.append(new_segment(opener, log.path, 0, self.env))
        report = RecoveryReport(segments=len(segments))
        for segment in segments:
            end = scan_segment(core, segment, 0, report, 0)
            size = segment.handle_or_open().size_bytes
            segment.sealed = segment is not segments[-1]
            if end < size and not segment.sealed and not self.read_only:
                segment.handle_or_open().truncate(end)
                report.truncated_bytes += size - end
        core.set_segments(segments)
        core.set_offsets(segments[0].base_offset, segments[-1].next_offset, 2**62)
        log.recovery = report

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log here."""
        found = map(parse_directory_name, self.env.fs.listdir(self.path))
        return sorted(key for key in found if key is not None)

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the partition's metadata file, None where none was written."""
        return read_topic_id(self.env.fs, os.path.join(self.path, directory_name(key)))

    def delete(self, key: TopicPartition) -> None:
        """Delete a partition's log with all its files; nothing happens where there is none."""
        path = os.path.join(self.path, directory_name(key))
        fs = self.env.fs
        with self._mutex:
            log = self._logs.pop(key, None)
            if log is not None:
                self._shut(log)
            try:
                names = fs.listdir(path)
            except FileNotFoundError:
                return
            for name in names:
                fs.unlink(os.path.join(path, name))
            fs.rmdir(path)

    def flush(self) -> None:
        """Put everything in all open logs on the disk."""
        for log in tuple(self._logs.values()):
            log.flush()

    def close_log(self, log: Log) -> None:
        """Checkpoint one log and close its files."""
        with self._mutex:
            self._logs.pop(log.topic_partition, None)
            self._shut(log)

    def _shut(self, log: Log) -> None:
        with log.core:
            log.core.close()
            log.closed = True
            for segment in log.core.segments:
                segment.close()

    def close(self) -> None:
        """Checkpoint and close all logs, and give the lock back."""
        with self._mutex:
            if self.closed:
                return
            self.closed = True
            for log in tuple(self._logs.values()):
                self._shut(log)
            self._logs.clear()
            if self._lock_file is not None:
                self._lock_file.truncate(0)
                self._lock_file.close()

    def __enter__(self) -> LogDir:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise errors.LogClosedError(f"the log directory {self.path} is closed: open it again")

    # -- what logs ask of their directory

    def note_dirty(self, log: Log) -> None:
        """Something in a log changed."""

    def checkpoint(self, log: Log) -> None:
        """Write a log's state to the index environment."""

    def forget_segments(self, log: Log, segments: list[LogSegment]) -> None:
        """Remove segments that a log no longer has."""
        for segment in segments:
            segment.close()
            self.env.fs.replace(segment.path, segment.path + DELETED_SUFFIX)
            self.env.fs.unlink(segment.path + DELETED_SUFFIX)

    def forget_tail(self, log: Log, segment: LogSegment | None, position: int) -> None:
        """Forget what the index has of a log from a position on, before it is cut."""

    def rescan(self, log: Log, segment: LogSegment) -> None:
        """Take a segment's last stretch in again, after it was cut."""
        size = segment.handle_or_open().size_bytes
        start = segment.rewind(size)
        log.core.epochs.truncate_from_end(segment.next_offset)
        log.core.scan(segment, start, size, producers_from=2**62)

    def rebuild_producers(self, log: Log) -> None:
        """Read the producers' state anew."""

    def load_index(self, log: Log, segment: LogSegment, offset: int) -> None:
        """Bring index entries into memory."""

    def refresh(self, log: Log) -> bool:
        """Take in what the writing process has added."""
        return False
