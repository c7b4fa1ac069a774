"""A directory of logs with Kafka's layout: one directory per topic-partition, one lock, one index
environment. One process writes to it, or several that share it; any number may read. It knows
topics only by name.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import uuid
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kstore.env import Env, SystemEnv
from kstore.items import Items, items_of, partitions_of
from kstore.log import errors
from kstore.log.index.environment import SharedEnvironment
from kstore.log.index.index_store import IndexStore, boot_id
from kstore.log.local.local_log import Fallbacks, LocalLog
from kstore.log.local.log_dir_state import LogDirState
from kstore.log.log import Log
from kstore.log.log_dir_facts import LogDirFacts
from kstore.log.log_dir_lock import LogDirLock
from kstore.log.lost_positions import cursor_names, cut_positions
from kstore.log.maintenance import Maintenance
from kstore.log.recovery.opening import begin, open_log
from kstore.log.recovery.segment_index import load_around
from kstore.log.segments.removal import remove_step
from kstore.log.segments.segment_names import (
    REMOVED_SUFFIX,
    STRAY_SUFFIX,
    directory_name,
    read_topic_id,
    unique_path,
    write_topic_id,
)
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.log.shared.catching_up import join
from kstore.log.shared.keeping import in_use, take_over
from kstore.log.transactions.journal import Journal
from kstore.log.transactions.transaction import Transaction, complete
from kstore.private_files import PRIVATE_FOLDER
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.cursors.committed_offsets import CommittedOffsets
    from kstore.log.index.index_store import LogState
    from kstore.log.shared.membership import Membership

__all__ = ["LogDir"]

DRAIN_SECONDS = 30.0  # for appends that wait for the disk when the directory is closed
_open_dirs: weakref.WeakSet[LogDir] = weakref.WeakSet()


def _corrupt(log: LocalLog, segment: LogSegment, position: int) -> errors.CorruptLogError:
    from kstore.log.recovery.corruption import examine  # needed only if something is damaged

    return examine(log, segment, position)


_FALLBACKS = Fallbacks(load_index=load_around, corrupt=_corrupt)


class LogDir(LogDirFacts):
    """The logs in one folder, with Kafka's layout. ``kstore.open_log_dir`` creates it. As a context
    manager it is closed at the end of the block.
    """

    def __init__(
        self,
        path: str,
        *,
        read_only: bool,
        flush: str,
        flush_interval_ms: int,
        env: Env | None,
        config: LogConfig,
        shared: bool = False,
    ) -> None:
        if read_only and shared:
            raise ValueError("read_only and shared are both True: use only read_only to read")
        self.path = path
        self.read_only = read_only
        self.env: Env = env or SystemEnv()
        self.config = config
        self.replicated = False
        """Whether the replication sets the high watermark of logs that are opened from now on: it
        starts at the last stored one, not at the log's end.
        """
        self._logs: dict[TopicPartition, Log] = {}
        self._mutex = threading.RLock()
        self._offsets: CommittedOffsets | None = None
        self._cursors: dict[TopicPartition, list[str]] | None = None
        policy = FlushPolicy(flush)
        self._lock = None if read_only else self._take_lock(shared, policy is FlushPolicy.ALWAYS)
        self._pages_seen = 0
        self.journal = Journal(self.env.fs, path, self.members)
        self._always = policy is FlushPolicy.ALWAYS
        try:
            self.state = LogDirState(
                path,
                read_only=read_only,
                flush_policy=policy,
                flush_interval_ms=flush_interval_ms,
                env=self.env,
                index=self._open_index(),
                boot=boot_id(),
                shared=shared,
            )
            self.maintenance = Maintenance(self.state, self._local_logs)
            if not read_only:
                self._begin_maintenance()
            if self.members is not None:
                self.maintenance.share(self._look_after)
        except OSError as error:
            self._give_lock_back()
            raise errors.storage_error(error, f"opening {path}") from error
        except BaseException:
            self._give_lock_back()
            raise
        _open_dirs.add(self)
        if not read_only:
            try:
                complete(self, always=self._always)
            except BaseException:
                self.close()
                raise

    def _begin_maintenance(self) -> None:
        if self._lock is not None and not self._lock.is_keeper:
            self.state.keeper = False
            self.state.keeper_name = self._lock.holder
            return
        self.state.index.when_replaced(self.maintenance.note_index_lost)
        self._finish_deletions()

    @property
    def members(self) -> Membership | None:
        """The processes that share this log dir; None if it is not shared."""
        return None if self._lock is None else self._lock.members

    def _look_after(self) -> None:
        """For a shared directory, periodically: do its maintenance if no other process does, for
        the logs that others have open as well.
        """
        members = self.members
        if members is None or self._lock is None or not self._mutex.acquire(blocking=False):
            return  # the next time
        try:
            if self.state.closed:
                return
            if self._lock.try_keep():
                take_over(self.state, self._local_logs(), was_closed=self._lock.was_closed)
                self._begin_maintenance()
                self._pages_seen = 0
            if self.state.keeper:
                complete(self, always=self._always, wait=False)
                if members.pages != self._pages_seen:
                    self._adopt(members)
        finally:
            self._mutex.release()

    def _adopt(self, members: Membership) -> None:
        """Open the logs that other processes have open."""
        self._pages_seen = members.pages
        for key in in_use(self.path, members):
            self.adopt(key)

    def adopt(self, key: TopicPartition) -> Log:
        """Open an existing log with the settings of the process that has it open."""
        with self._mutex:
            if key not in self._logs:
                self._logs[key] = self._open_log(key, False, self.config, None, adopts=True)
            return self._logs[key]

    def transaction(self) -> Transaction:
        """Append to several logs at once, at the end of a ``with`` block. After a crash the logs
        have all of its records or none. Raises ReadOnlyLogError and LogClosedError.
        """
        self._check_open()
        if self.read_only:
            raise errors.ReadOnlyLogError(f"{self.path} is read-only: open it without read_only")
        return Transaction(self, always=self._always)

    def _take_lock(self, shared: bool, always: bool) -> LogDirLock:
        try:
            self.env.fs.mkdir(self.path, PRIVATE_FOLDER)
        except OSError as error:
            raise errors.storage_error(error, f"creating {self.path}") from error
        return LogDirLock(self.path, shared=shared, always=always)

    def _give_lock_back(self) -> None:
        if self._lock is not None:
            self._lock.give_back()

    def _open_index(self) -> IndexStore:
        if self._lock is not None and self._lock.is_keeper:
            return IndexStore(self.path, read_only=False, was_closed=self._lock.was_closed)
        if not os.path.isdir(self.path):
            raise errors.LogNotFoundError(f"{self.path} is not a directory")
        return IndexStore(self.path, read_only=True)

    def _finish_deletions(self) -> None:
        """Delete the directories of partitions that a crash left half deleted."""
        for name in self.env.fs.listdir(self.path):
            if name.endswith(REMOVED_SUFFIX):
                self.remove_taken(os.path.join(self.path, name))

    @property
    def committed_offsets(self) -> CommittedOffsets:
        """The offsets that cursors have committed in this log dir."""
        if self._offsets is None:
            from kstore.log.cursors.committed_offsets import CommittedOffsets

            self._offsets = CommittedOffsets(self)
        return self._offsets

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
        """Open the log of a topic-partition; create it if it does not exist. ``config`` replaces
        the default settings of the log dir.

        Raises LogNotFoundError if the log does not exist and ``create`` is False, and ValueError
        for a topic name or partition that Kafka refuses.
        """
        key = TopicPartition(topic, partition)
        with self._mutex:
            self._check_open()
            log = self._logs.get(key)
            if log is None:
                with errors.storage_errors(f"opening {key}"):
                    log = self._open_log(key, create, config or self.config, topic_id)
                self._logs[key] = log
            elif config is not None:
                log.configure(config)
            return log

    def _open_log(
        self,
        key: TopicPartition,
        create: bool,
        config: LogConfig,
        topic_id: uuid.UUID | None,
        *,
        adopts: bool = False,
    ) -> Log:
        with contextlib.ExitStack() as stack:
            if self.members is not None:
                stack.enter_context(self.members.opening())
            return self._open_alone(key, create, config, topic_id, adopts)

    def _open_alone(
        self,
        key: TopicPartition,
        create: bool,
        config: LogConfig,
        topic_id: uuid.UUID | None,
        adopts: bool,
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
            is_known = True
        else:
            is_known = state is not None and state.boot == self.state.boot
            if state is not None and state.listed_ns == stamp and any(state.topic_id):
                topic_id = uuid.UUID(bytes=state.topic_id)
            else:
                topic_id = self._found_topic_id(path, topic_id)
        local = LocalLog(self.state, self.maintenance, _FALLBACKS, key, path, config, topic_id)
        log = Log(self, local)
        log.core.follows_end = not self.replicated
        if self.members is None:
            open_log(local, state)
        else:
            join(local, self.members, adopts=adopts)
            begin(local)
        if not (is_known or self.read_only or self.replicated):
            if self._cursors is None:
                self._cursors = cursor_names(self.path)
            cut_positions(log, self._cursors.get(key, ()))
        return log

    def _make_folder(self, path: str, topic_id: uuid.UUID) -> None:
        """Write a folder with the topic's id, or no folder: the next attempt would accept a folder
        without an id as it is.
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
        """The id in an existing directory; one without an id gets one."""
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

    def delete(self, *keys: TopicPartition) -> None:
        """Delete the logs of these partitions with all their files. Partitions without a log are
        ignored.
        """
        with self._mutex:
            for taken in self.take_away(*keys):
                self.remove_taken(taken)

    def take_away(self, *keys: TopicPartition) -> list[str]:
        """The quick part of `delete`: after it, the logs no longer exist. Returns the folders that
        are left, for `remove_taken`. The next start deletes those that remain.
        """
        keys = tuple(partitions_of("keys", keys))
        with self._mutex:
            self.state.check_keeper(self.path)
            if self.members is not None:
                self._adopt(self.members)  # so that the others learn of it
            for key in keys:
                log = self._logs.pop(key, None)
                if log is not None:
                    log.local.deleted = True
                    self._shut(log)
            names = [directory_name(key) for key in keys]
            self.state.index.forget_logs(names)
            taken = []
            for name in names:
                # A new log with this name may be created at once: rename the files.
                path = os.path.join(self.path, name)
                removed = unique_path(path, REMOVED_SUFFIX)
                with contextlib.suppress(FileNotFoundError):
                    self.env.fs.replace(path, removed)
                    taken.append(removed)
            return taken

    def remove_taken(self, path: str) -> None:
        """Remove the files of a log that `take_away` has taken. Any thread may do it."""
        while self.remove_step(path):
            pass

    def remove_step(self, path: str) -> bool:
        """Remove a part of these files. Returns True if some are left."""
        return remove_step(self.env.fs, path)

    def delete_before(self, rows: Items[tuple[Log, int]]) -> list[errors.LogError | OSError | None]:
        """Like `Log.delete_before` for many logs, in one transaction. Returns each log's error or
        None. Raises an error of the transaction itself.
        """
        from kstore.log.retention.retention import delete_many_before

        pairs = items_of("rows", rows, tuple, "(log, offset)")
        return delete_many_before([(log.local, offset) for log, offset in pairs])

    def put_aside(self, key: TopicPartition) -> str:
        """Close the log of a partition and rename its folder. Returns the new path. No state of the
        log is kept, so a new log with the same name starts empty.
        """
        path = os.path.join(self.path, directory_name(key))
        with self._mutex:
            self.state.check_keeper(self.path)
            log = self._logs.get(key)
            if log is not None:
                self.close_log(log)
            self.state.index.forget_logs([os.path.basename(path)])
            stray = unique_path(path, STRAY_SUFFIX)
            self.env.fs.replace(path, stray)
            return stray

    def flush(self) -> None:
        """Wait until everything that was appended to the open logs is on disk."""
        for log in tuple(self._logs.values()):
            log.flush()

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Like `Log.snapshot`, for all logs. A transaction is in all of the copies or in none."""
        from kstore.log.snapshot import take_snapshot

        take_snapshot([self.log(*key) for key in self.partitions()], self.path, os.fspath(path))

    def close_log(self, log: Log) -> None:
        """Sync and checkpoint one log, and close its files."""
        with self._mutex:
            self._logs.pop(log.topic_partition, None)
            try:
                if not self.read_only and self._is_unsaved(log):
                    self.maintenance.save_closing([log.local])
            finally:
                self._shut(log)

    def _is_unsaved(self, log: Log) -> bool:
        core = log.core
        if core.page is not None and core.page.deleted:
            return False
        return core.durable_offset < core.log_end_offset or self.maintenance.is_dirty(log.local)

    def _shut(self, log: Log) -> None:
        self.maintenance.forget(log.local)
        log.local.shut()

    def close(self) -> None:
        """Write everything to disk, close all logs, and release the log dir's lock."""
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
                    self.maintenance.save_closing(unsaved)
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
                self.journal.close()
                self.state.index.close()
                self._give_lock_back()

    def after_fork(self) -> None:
        """In a child process: mark the log dir as closed. It belongs to the parent."""
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
