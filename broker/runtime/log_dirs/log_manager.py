"""The partitions with logs in this process. It knows which log dir has which partition, and puts
open logs into the data plane's table.

topics.py decides about topics and leaders. Only this file opens and deletes logs.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_table import PartitionTable
from kstore.broker.runtime.dir_threads import LogDirHangsError
from kstore.broker.runtime.log_dirs.dir_calls import (
    Taken,
    Wanted,
    all_taken,
    copy_serves,
    open_each,
    open_wanted,
    parts,
    pieces,
    topic_ids,
)
from kstore.broker.runtime.log_dirs.future_logs import drop_future, is_future, take_origin, unmark
from kstore.broker.runtime.log_dirs.homes import Homes
from kstore.broker.runtime.log_dirs.log_dir_failures import unusable
from kstore.broker.runtime.log_dirs.removals import Removals
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.metadata.topic_rules import topic_row
from kstore.record.compression import compression_for
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import TopicImage
    from kstore.log import Log, LogDir
    from kstore.log.errors import LogStorageError
    from kstore.log.settings import LogConfig

__all__ = ["LogManager"]

LOGGER = logging.getLogger("kstore.broker")
T = TypeVar("T")


class LogManager:
    """The log dirs of this broker and the partitions open in them."""

    def __init__(self, node: Node, table: PartitionTable, *, replicated: bool) -> None:
        """``replicated``: other brokers may have replicas of these logs."""
        self.report = node.report
        self.table = table
        self.node_id = node.node_id
        self._config = node.config
        self._loop = node.loop
        self._replicated = replicated
        self._dirs: list[LogDir] = []
        self._homes = Homes()
        self.leaving: dict[TopicPartition, LogDir] = {}
        """Log dirs of logs that are being deleted. A new log of the same name is created there."""
        self._moving: dict[TopicPartition, tuple[LogDir, asyncio.Task[list[str]]]] = {}
        """The old log dirs of moves whose folders do not have their new names yet."""
        self.threads = node.dirs
        self.removals = Removals(node)
        self._reads = node.dir_reads
        self.failed: dict[str, str] = {}
        """Failed log dirs: path to the reason (log_dir_failures.py)."""
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}

    @property
    def is_open(self) -> bool:
        """Whether `open` has been called."""
        return bool(self._dirs)

    def open(self, paths: Sequence[str]) -> None:
        """Open and lock the log dirs. Raises LogDirLockedError if another process has one of them.
        If there are several log dirs, those that cannot be opened count as failed; raises
        LogStorageError if all of them do.
        """
        from kstore.log.errors import LogDirLockedError, LogError, LogStorageError

        found: list[tuple[LogDir, list[TopicPartition]]] = []
        for path in paths:
            try:
                found.append(self._open_dir(path))
            except LogDirLockedError:
                raise
            except (LogError, OSError) as problem:
                if len(self.failed) == len(paths) - 1:
                    raise unusable(path, problem) from problem
                self.failed[path] = str(problem)
                LOGGER.error(
                    "the log dir %s can't be opened, and its partitions are offline until it can "
                    "and this broker restarts: %s", path, problem,
                )  # fmt: skip
        self._configure_dirs()
        self._config.watch(lambda changed: self._configure_dirs())
        for log_dir, partitions in found:
            for partition in partitions:
                if self.failed and is_future(log_dir, partition):
                    continue  # stays offline: the old log may be in a log dir that has failed
                other = self._homes.get(partition)
                if other is None or drop_future(other, partition):
                    self._homes[partition] = log_dir
                elif not drop_future(log_dir, partition):
                    raise LogStorageError(
                        f"{partition} is in both {other.path} and {log_dir.path}: remove the copy "
                        "that you do not need"
                    )
        if len(self._dirs) > 1:
            for key, log_dir in self._homes.items():
                if is_future(log_dir, key):
                    unmark(log_dir, key)  # the old log is gone, so the copy is complete

    def _serve_appends(self, log_dir: LogDir) -> None:
        """Let the log dir's threads do appends that may wait for the disk."""
        log_dir.appends.serve(self.table.call_threadsafe)

    def _open_dir(self, path: str) -> tuple[LogDir, list[TopicPartition]]:
        from kstore.broker.runtime.log_dirs.opening import open_dir

        log_dir = open_dir(
            path,
            flush=self._config["kstore.flush.policy"],
            flush_interval_ms=self._config["kstore.flush.interval.ms"],
            replicated=self._replicated,
        )
        self._serve_appends(log_dir)
        log_dir.pages.serve(
            self._loop.add_reader, self._loop.remove_reader, partial(self._reads.run, log_dir.path)
        )
        self._dirs.append(log_dir)
        return log_dir, log_dir.partitions()

    # ---- failed log dirs ----

    def places_in(self, log_dir: LogDir) -> list[TopicPartition]:
        """The partitions in a log dir."""
        return [key for key, home in self._homes.items() if home is log_dir]

    def is_offline(self, key: TopicPartition, *, is_new: bool = False) -> bool:
        """Whether a partition is in a failed log dir: a known one that is in no other log dir."""
        if not self.failed:
            return False
        home = self._homes.get(key)
        return not is_new if home is None else home.path in self.failed

    def _offline_error(self, key: TopicPartition) -> LogStorageError:
        from kstore.log.errors import LogStorageError

        home = self._homes.get(key)
        where = ", ".join(self.failed) if home is None else home.path
        return LogStorageError(errno.EIO, f"{key} is in a log dir that has failed: {where}")

    def _configure_dirs(self) -> None:
        self._log_configs.clear()
        # With several log dirs, one whose disk hangs must not block the others.
        threads_always = len(self._dirs) > 1 or self._config["kstore.append.threads"] == "always"
        for log_dir in self._dirs:
            calm = log_dir.appends.calm
            calm.threads_always = threads_always
            if calm.probe is not None:
                calm.probe.interval_ms = self._config["kstore.log.dir.probe.ms"]
            log_dir.retention_check_ms = self._config["log.retention.check.interval.ms"]
            log_dir.producer_expiration_ms = self._config["producer.id.expiration.ms"]
            if log_dir.write_back is not None:
                log_dir.write_back.set_budget(
                    self._config["kstore.log.write.back.bytes"], self._machine_budget
                )

    def _machine_budget(self) -> int:
        from kstore.log.write_budget import machine_budget  # with few writes, nothing else calls it

        return machine_budget(max(len(self._dirs), 1))

    @property
    def dirs(self) -> Sequence[LogDir]:
        """The log dirs, in the order of log.dirs."""
        return self._dirs

    def found(self) -> dict[str, dict[int, UUID | None]]:
        """Topic to partition to topic id (None if none was written) in the log dirs."""
        topics: dict[str, dict[int, UUID | None]] = {}
        for partition, log_dir in self._homes.items():
            topics.setdefault(partition.topic, {})[partition.partition] = log_dir.topic_id(
                partition
            )
        return topics

    def add_topic(self, topic: TopicImage) -> TopicEntry:
        """Add a topic without partitions to the data plane."""
        entry = TopicEntry(topic.name.encode(), topic.topic_id.bytes, internal=topic.internal)
        self.table.add_topic(entry)
        return entry

    def open_partition(
        self, entry: TopicEntry, topic: TopicImage, index: int, config: LogConfig
    ) -> Partition:
        """Open (or create) the log of one partition and put it into the table. Blocks."""
        wanted = Wanted(TopicPartition(topic.name, index), topic.topic_id, config)
        log_dir = self._home(wanted.key)
        log = open_wanted(log_dir, wanted)
        self._homes[wanted.key] = log_dir
        return self._serve(entry, topic, index, log)

    async def open_partitions(
        self, entry: TopicEntry, topic: TopicImage, indexes: Iterable[int], config: LogConfig
    ) -> None:
        """Open (or create) the logs of partitions and put them into the table. Raises the first
        LogError or OSError.
        """
        wanted = [Wanted(TopicPartition(topic.name, i), topic.topic_id, config) for i in indexes]
        failed: Exception | None = None
        async for each, opened in self.open_logs(wanted):
            if isinstance(opened, Exception):
                failed = failed or opened
            else:
                self._serve(entry, topic, each.key.partition, opened)
        if failed is not None:
            raise failed

    def _serve(self, entry: TopicEntry, topic: TopicImage, index: int, log: Log) -> Partition:
        image = topic.partitions[index]
        partition = Partition(
            entry,
            index,
            log,
            leader_id=image.leader,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
        )
        self.configure(partition, log.config, len(image.replicas))
        self.table.add_partition(partition)
        return partition

    async def open_logs(
        self, wanted: Sequence[Wanted], *, patient: bool = True
    ) -> AsyncIterator[tuple[Wanted, Log | Exception]]:
        """Open (or create) logs, each in the thread of its log dir. They need not be in the table.
        A log of another topic is put aside. Yields each partition with its log or its error, in the
        order of completion. Unless ``patient``, a log whose log dir hangs gets LogDirHangsError; it
        is opened when the log dir answers again.
        """
        places: dict[str, tuple[LogDir, list[Wanted]]] = {}
        offline = [each for each in wanted if self.is_offline(each.key, is_new=each.is_new)]
        for each in offline:
            yield each, self._offline_error(each.key)
        wanted = [each for each in wanted if each not in offline] if offline else wanted
        new = {each.key for each in wanted if each.key not in self._homes}
        for each in wanted:
            log_dir = self._homes[each.key] = self._home(each.key)
            places.setdefault(log_dir.path, (log_dir, []))[1].append(each)
        done: asyncio.Queue[tuple[Wanted, Log | Exception]] = asyncio.Queue()
        opening = [
            asyncio.ensure_future(self._open_in(log_dir, rows, done, patient))
            for log_dir, rows in places.values()
        ]
        try:
            for _ in wanted:
                each, opened = await done.get()
                failed = isinstance(opened, Exception) and not isinstance(opened, LogDirHangsError)
                if failed and each.key in new:
                    self._homes.pop(each.key, None)
                yield each, opened
        finally:
            for task in opening:
                task.cancel()

    async def _open_in(
        self,
        log_dir: LogDir,
        wanted: Sequence[Wanted],
        done: asyncio.Queue[tuple[Wanted, Log | Exception]],
        patient: bool,
    ) -> None:
        for some in pieces(wanted):
            what = f"opening {some[0].key}"
            call = self.in_thread(log_dir, what, partial(open_each, log_dir, some))
            try:
                opened = await (call if patient else self.threads.result(call, log_dir.path))
            except Exception as problem:  # noqa: BLE001 - the caller gets it
                opened = [(each, problem, None) for each in some]
            for each, log, stray in opened:
                if stray is not None:
                    self._report_stray(os.path.join(log_dir.path, str(each.key)), each.key, stray)
                done.put_nowait((each, log))

    def in_thread(self, log_dir: LogDir, what: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call in the thread of a log dir; ``what`` names it."""
        return self.threads.run(log_dir.path, what, call)

    def home(self, key: TopicPartition) -> LogDir | None:
        """The log dir of the log that serves a partition."""
        return self._homes.get(key)

    def paths(self, keys: Collection[TopicPartition]) -> set[str]:
        """The log dirs that deletions wait for: those of the logs, and old ones until moves end."""
        places = [self._homes[key] for key in keys if key in self._homes]
        places += [self._moving[key][0] for key in keys if key in self._moving]
        return {log_dir.path for log_dir in places}

    def places(self) -> list[TopicPartition]:
        """All partitions with a log on this broker, open or not."""
        return list(self._homes)

    async def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, UUID | None]:
        """The topic ids of logs. None if there is no log, or it has no id. Logs whose log dir hangs
        are left out.
        """
        found: dict[TopicPartition, UUID | None] = dict.fromkeys(keys)
        for log_dir, some in self._by_dir(found):
            read = partial(topic_ids, log_dir, some)
            call = self.in_thread(log_dir, f"reading the topic id of {some[0]}", read)
            if await self.threads.ended(call, [log_dir.path]):
                found.update(await call)
            else:
                for key in some:
                    del found[key]
        return found

    def _by_dir(
        self, keys: Iterable[TopicPartition]
    ) -> Iterator[tuple[LogDir, list[TopicPartition]]]:
        """The partitions with a log on this broker, some of one log dir at a time."""
        for part in parts(keys):
            places: dict[str, tuple[LogDir, list[TopicPartition]]] = {}
            for key in part:
                if (log_dir := self._homes.get(key)) is not None:
                    places.setdefault(log_dir.path, (log_dir, []))[1].append(key)
            for log_dir, found in places.values():
                for some in pieces(found):
                    yield log_dir, some

    def add_offline(self, entry: TopicEntry, index: int) -> None:
        """Put a partition of a failed log dir into the table."""
        partition = Partition(entry, index, None, leader_id=-1)
        self.table.add_partition(partition)
        partition.fail()

    def fail(self, key: TopicPartition) -> None:
        """The log dir of a partition has failed."""
        partition = self.table.partition(key.topic.encode(), key.partition)
        if partition is not None:
            partition.fail()

    def configure(self, partition: Partition, config: LogConfig, replicas: int) -> None:
        """Apply settings to a partition with this many replicas, and to its log."""
        if partition.log.config is not config:
            partition.log.configure(config)
        stored = config.compression_type
        partition.configure(
            stored_codec=-1 if stored == "producer" else int(compression_for(stored).id),
            stored_level=config.compression_level,
            # min.insync.replicas cannot exceed the number of replicas.
            min_insync_replicas=min(config.min_insync_replicas, replicas),
        )

    def delete_now(self, key: TopicPartition) -> None:
        """Delete one partition's log, if it exists. Blocks."""
        log_dir = self._homes.pop(key, None)
        if log_dir is not None:
            log_dir.delete(key)

    async def take_away(self, keys: Iterable[TopicPartition]) -> Awaitable[list[Taken]]:
        """Remove the logs of partitions, but not their files, which `removals` removes. Missing
        logs are skipped. When this returns, the logs have no log dir any more. The awaitable that
        it returns completes when all logs are closed, and raises the first LogError or OSError
        after all were tried.
        """
        slices = Slices()
        taking = []
        moving = []
        for log_dir, some in self._by_dir(keys):
            for key in some:
                self.leaving[key] = self._homes.pop(key)
            moves = [self._moving[key][1] for key in some if key in self._moving]
            moving += moves
            call = partial(log_dir.take_away, *some)
            done = self.in_thread(log_dir, f"deleting {some[0]}", call)
            gone = asyncio.gather(done, *moves, return_exceptions=True) if moves else done
            gone.add_done_callback(partial(self._left, some))
            taking.append((log_dir, done))
            await slices.breathe()
        return all_taken(taking, moving)

    def _left(self, keys: list[TopicPartition], _: asyncio.Future[Any]) -> None:
        for key in keys:
            self.leaving.pop(key, None)

    def put_aside_now(self, key: TopicPartition) -> None:
        """As `put_aside`. Blocks."""
        log_dir = self._homes.pop(key, None)
        if log_dir is not None:
            self._report_stray(os.path.join(log_dir.path, str(key)), key, log_dir.put_aside(key))

    async def put_aside(self, key: TopicPartition) -> None:
        """Rename the folder of a partition of an unknown topic, since it may contain records."""
        log_dir = self._homes.pop(key, None)
        if log_dir is not None:
            self.leaving[key] = log_dir
            try:
                call = partial(log_dir.put_aside, key)
                new = await self.in_thread(log_dir, f"putting {key} aside", call)
            finally:
                self.leaving.pop(key, None)
            self._report_stray(os.path.join(log_dir.path, str(key)), key, new)

    def _report_stray(self, old: str, key: TopicPartition, new: str) -> None:
        self.report(
            f"{old} does not belong to the topic {key.topic} that this broker knows; it was "
            f"renamed to {new}"
        )

    # ---- moves between log dirs ----

    def moved(self, key: TopicPartition, target: LogDir) -> Awaitable[list[Taken]]:
        """The copy in another log dir serves the partition from now on. Returns the result of
        `take_away` for the old log, which completes once the copy would be used after a crash, too.
        """
        source, self._homes[key] = self._homes[key], target
        # Its first call runs next in the log dir's thread.
        what = f"moving {key} away"
        taking = self.in_thread(source, what, partial(take_origin, source, key))
        call = partial(self.in_thread, target, what, partial(unmark, target, key))
        ended = self._loop.create_task(
            copy_serves(key, target, taking, call, self.failed, self.report)
        )
        self._moving[key] = source, ended
        ended.add_done_callback(lambda _: self._moving.pop(key))
        return all_taken([(source, ended)])

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a log: the topic's, else the broker's defaults."""
        from kstore.log.settings import LogConfig

        key = frozenset(overrides.items())
        found = self._log_configs.get(key)
        if found is None:
            given = self._config.topic_defaults()
            for name, text in overrides.items():
                row = topic_row(name)  # None: a setting of a newer version
                given[name] = text if row is None else row.format(row.parse(text, "topic config"))
            found = self._log_configs[key] = LogConfig.from_topic_configs(given)
        return found

    def logs(self) -> list[tuple[Partition, Log]]:
        """All open partitions with their logs."""
        return [
            (partition, partition.log)
            for entry in self.table.topics()
            for partition in entry.partitions
            if partition is not None and partition.log is not None
        ]

    def close(self) -> None:
        """Flush, checkpoint and mark all logs as closed cleanly. Further appends fail."""
        self.removals.close()
        dirs, self._dirs = self._dirs, []
        for log_dir in dirs:
            log_dir.pages.end()  # in this thread, because the loop runs here
            if log_dir.path in self.failed:
                self._give_up(log_dir)
                continue
            log_dir.close()

    def _give_up(self, log_dir: LogDir) -> None:
        """Close a failed log dir, as far as possible."""
        from kstore.log.errors import LogError

        try:
            log_dir.close()
        except (LogError, OSError) as problem:
            self.report(f"the failed log dir {log_dir.path} is not closed cleanly: {problem}")

    def _home(self, key: TopicPartition) -> LogDir:
        """The log dir of a partition. For a new partition, the log dir with the fewest partitions
        that does not hang.
        """
        known = self._homes.get(key) or self.leaving.get(key)
        if known is not None:
            return known
        online = [each for each in self._dirs if each.path not in self.failed]
        if not online:
            raise self._offline_error(key)
        answering = [each for each in online if not self.threads.hangs(each.path)]
        return min(answering or online, key=self._homes.count)
