"""A directory of logs, laid out as Kafka's: one directory per topic-partition, one lock, one index
environment. One process writes to it; any number read. It does not know topics beyond their names.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kstore.env import Env, SystemEnv
from kstore.log import errors
from kstore.log.index.environment import SharedEnvironment
from kstore.log.index.index_store import IndexStore, boot_id
from kstore.log.local.local_log import Fallbacks, LocalLog
from kstore.log.local.log_dir_state import LogDirState
from kstore.log.log import Log
from kstore.log.log_dir_lock import LogDirLock
from kstore.log.maintenance import Maintenance
from kstore.log.recovery.opening import open_log
from kstore.log.recovery.segment_index import load_around
from kstore.log.segments.segment_names import (
    directory_name,
    parse_directory_name,
    read_topic_id,
    write_topic_id,
)
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.private_files import PRIVATE_FOLDER
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.disk.page_reader import PageReader
    from kstore._fast.disk.write_back import WriteBack
    from kstore._fast.log.append_queue import AppendQueue
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.cursor import CommittedOffsets
    from kstore.log.index.index_store import LogState

__all__ = ["LogDir"]

REMOVED_SUFFIX = "-delete"  # of a partition's directory whose files are being removed
DRAIN_SECONDS = 30.0  # for appends that wait for the disk when the directory is closed
STRAY_SUFFIX = "-stray"  # of one that belongs to no topic, and may hold what somebody wants
STEP_BYTES = 64 << 20
"""What is freed at once of a file that is removed."""
_open_dirs: weakref.WeakSet[LogDir] = weakref.WeakSet()


def _corrupt(log: LocalLog, segment: LogSegment, position: int) -> errors.CorruptLogError:
    from kstore.log.recovery.corruption import examine  # where nothing is damaged, nobody needs it

    return examine(log, segment, position)


_FALLBACKS = Fallbacks(load_index=load_around, corrupt=_corrupt)


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
        self.env: Env = env or SystemEnv()
        self.config = config
        self.replicated = False
        """Whether logs opened from now on have their high watermark from whoever replicates them:
        it begins at the last one that was written down, not at the log's end.
        """
        self._logs: dict[TopicPartition, Log] = {}
        self._mutex = threading.RLock()
        self._offsets: CommittedOffsets | None = None
        policy = FlushPolicy(flush)
        self._lock = None if read_only else self._take_lock()
        try:
            self.state = LogDirState(
                path,
                read_only=read_only,
                flush_policy=policy,
                flush_interval_ms=flush_interval_ms,
                env=self.env,
                index=self._open_index(),
                boot=boot_id(),
            )
            self.maintenance = Maintenance(self.state, self._local_logs)
            if not read_only:
                self.state.index.when_replaced(self.maintenance.note_index_lost)
                self._finish_deletions()
        except OSError as error:
            self._give_lock_back()
            raise errors.storage_error(error, f"opening {path}") from error
        except BaseException:
            self._give_lock_back()
            raise
        _open_dirs.add(self)

    def _take_lock(self) -> LogDirLock:
        try:
            self.env.fs.mkdir(self.path, PRIVATE_FOLDER)
        except OSError as error:
            raise errors.storage_error(error, f"making {self.path}") from error
        return LogDirLock(self.path)

    def _give_lock_back(self) -> None:
        if self._lock is not None:
            self._lock.give_back()

    def _open_index(self) -> IndexStore:
        if self._lock is not None:
            return IndexStore(self.path, read_only=False, was_closed=self._lock.was_closed)
        if not os.path.isdir(self.path):
            raise errors.LogNotFoundError(f"{self.path} is no directory: nothing to read there")
        return IndexStore(self.path, read_only=True)

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

    # -- what is set, and what was counted

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.state.closed

    @property
    def retention_check_ms(self) -> int:
        """How often old segments are looked for (log.retention.check.interval.ms)."""
        return self.state.retention_check_ms

    @retention_check_ms.setter
    def retention_check_ms(self, interval_ms: int) -> None:
        self.state.retention_check_ms = interval_ms

    @property
    def producer_expiration_ms(self) -> int:
        """How long a producer's sequence numbers are kept (producer.id.expiration.ms)."""
        return self.state.producer_expiration_ms

    @producer_expiration_ms.setter
    def producer_expiration_ms(self, age_ms: int) -> None:
        self.state.producer_expiration_ms = age_ms

    @property
    def appends(self) -> AppendQueue:
        """The threads for appends that may have to wait."""
        return self.state.appends

    @property
    def write_back(self) -> WriteBack | None:
        """What has the system write early what is written here; None where nothing is."""
        return self.state.write_back

    @property
    def pages(self) -> PageReader:
        """What reads what is not in the page cache."""
        return self.state.pages

    @property
    def index(self) -> IndexStore:
        """The index environment; what is written there is maintenance's affair."""
        return self.state.index

    @property
    def damages(self) -> int:
        """Damaged parts of segments that became known."""
        return self.state.damages

    @property
    def repaired_parts(self) -> int:
        """Damaged parts that were written again from another replica."""
        return self.state.repaired_parts

    @property
    def lost_offsets(self) -> int:
        """Offsets that were in logs and were found lost."""
        return self.state.lost_offsets

    @property
    def index_damages(self) -> int:
        """How often the index turned out damaged, the whole of it or a part, and was made anew."""
        index = self.state.index
        return index.replaced + index.damaged_values + self.state.wrong_indexes

    def count_lost(self, offsets: int) -> None:
        """So many offsets were found lost by who replicates a log."""
        self.state.lost_offsets += offsets

    def when_damaged(self, tell: Callable[[TopicPartition], object]) -> None:
        """Have ``tell`` called, in any thread, with the partition of which a damaged part became
        known.
        """
        self.state.on_damage = tell

    def note_error(self, problem: BaseException) -> None:
        """An operation on one of the logs has failed, which may mean that the disk is gone."""
        self.state.note_error(problem)

    @property
    def failed(self) -> str | None:
        """Why the disk is taken for gone; None while it is not."""
        return self.state.failed

    def when_failed(self, tell: Callable[[], object]) -> None:
        """Have ``tell`` called, in any thread, when the disk is taken for gone."""
        self.state.on_failed = tell

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
        state: LogState | None = self.state.index.state(os.path.basename(path))
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
        local = LocalLog(self.state, self.maintenance, _FALLBACKS, key, path, config, topic_id)
        log = Log(self, local)
        log.core.follows_end = not self.replicated
        open_log(local, state)
        return log

    def _make_folder(self, path: str, topic_id: uuid.UUID) -> None:
        """A folder with the topic's id, or none at all: the next try would take a folder without
        an id as it is.
        """
        fs = self.env.fs
        self.state.unsynced_names = True
        try:
            fs.mkdir(path)
            write_topic_id(
                fs, path, topic_id, durable=self.state.flush_policy is FlushPolicy.ALWAYS
            )
        except OSError:
            with contextlib.suppress(OSError):
                self.remove_taken(path)
            raise

    def _found_topic_id(self, path: str, given: uuid.UUID | None) -> uuid.UUID | None:
        """The id in a directory that was there; one without an id is given one."""
        found = read_topic_id(self.env.fs, path)
        if found is None and given is not None and not self.read_only:
            write_topic_id(self.env.fs, path, given, durable=True)
            found = given
        return found

    def open_logs(self) -> tuple[Log, ...]:
        """The logs that are open now."""
        return tuple(self._logs.values())

    def _local_logs(self) -> Iterable[LocalLog]:
        return [log.local for log in self.open_logs()]

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

    def delete(self, *keys: TopicPartition) -> None:
        """Delete partitions' logs with all their files; nothing happens where there is none."""
        with self._mutex:
            for taken in self.take_away(*keys):
                self.remove_taken(taken)

    def take_away(self, *keys: TopicPartition) -> list[str]:
        """The quick part of `delete`: there are no such logs from now on. Returns the folders that
        are left for `remove_taken`; what nobody removes goes at the next start.
        """
        with self._mutex:
            for key in keys:
                log = self._logs.pop(key, None)
                if log is not None:
                    log.local.deleted = True
                    self._shut(log)
            names = [directory_name(key) for key in keys]
            self.state.index.forget_logs(names)
            taken = []
            for name in names:
                # A new log of this name may come at once: the files go under another name.
                path = os.path.join(self.path, name)
                removed = f"{path}.{uuid.uuid4().hex}{REMOVED_SUFFIX}"
                with contextlib.suppress(FileNotFoundError):
                    self.env.fs.replace(path, removed)
                    taken.append(removed)
            return taken

    def remove_taken(self, path: str) -> None:
        """Remove the files of a log that `take_away` has taken; large ones take their time, and any
        thread may do it.
        """
        fs = self.env.fs
        for name in fs.listdir(path):
            file = os.path.join(path, name)
            # In steps: to free much at once keeps the file system's journal, and others, for long.
            for size_bytes in range(fs.file_size(file) - STEP_BYTES, 0, -STEP_BYTES):
                fs.truncate(file, size_bytes)
            fs.unlink(file)
        fs.rmdir(path)

    def delete_before(
        self, rows: Sequence[tuple[Log, int]]
    ) -> list[errors.LogError | OSError | None]:
        """As `Log.delete_before` for many logs of this dir, in one transaction; what went wrong,
        log by log. Raises what goes wrong with that transaction.
        """
        from kstore.log.retention.retention import delete_many_before

        return delete_many_before([(log.local, offset) for log, offset in rows])

    def put_aside(self, key: TopicPartition) -> str:
        """Rename a partition's folder, whose log is closed first; returns its new path. Nothing
        that is known of it remains, so a log of the same name begins anew.
        """
        path = os.path.join(self.path, directory_name(key))
        with self._mutex:
            log = self._logs.get(key)
            if log is not None:
                self.close_log(log)
            self.state.index.forget_logs([os.path.basename(path)])
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
                    self.maintenance.save([log.local], closing=True)
            finally:
                self._shut(log)

    def _is_unsaved(self, log: Log) -> bool:
        core = log.core
        return core.durable_offset < core.log_end_offset or self.maintenance.is_dirty(log.local)

    def _shut(self, log: Log) -> None:
        local = log.local
        self.maintenance.forget(local)
        with local.core as core:
            core.close()
            local.closed = True
            for segment in core.segments:
                segment.close()
        if local.waiters is not None:
            local.waiters.close()

    def close(self) -> None:
        """Sync and checkpoint all logs, close them, and give the lock back."""
        with self._mutex:
            if self.state.closed:
                return
            self.state.closed = True
            logs = self.open_logs()
            try:
                self.state.appends.close(DRAIN_SECONDS)
                self.maintenance.stop()
                for log in logs:
                    log.core.close()  # no append comes after the checkpoint
                    log.local.disk.on_durable = None
                if not self.read_only:
                    unsaved = [log.local for log in logs if self._is_unsaved(log)]
                    self.maintenance.save(unsaved, closing=True)
                    self.maintenance.remove_rest()
            except OSError as error:
                raise errors.storage_error(error, f"closing {self.path}") from error
            finally:
                for log in logs:
                    self._shut(log)
                self._logs.clear()
                if self.state.write_back is not None:
                    self.state.write_back.close()
                self.state.pages.end()
                self.state.index.close()
                self._give_lock_back()

    def after_fork(self) -> None:
        """In a child process: this directory is the parent's, nothing of it may be used here."""
        self.state.closed = True
        self._mutex = threading.RLock()
        if self._lock is not None:
            self._lock.after_fork()
        self.maintenance.after_fork()
        self.state.appends.forget()
        for log in self.open_logs():
            log.core.after_fork()
            log.local.closed = True

    def __enter__(self) -> LogDir:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.state.closed:
            raise errors.closed_error(f"the log directory {self.path}", self.state.opened_by)


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
