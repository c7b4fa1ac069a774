"""What all coordinators share: which partitions of their topic this broker serves, and from when to
when.

A single broker serves all partitions. A broker of a cluster serves those that it leads: it loads a
partition when it becomes the leader, and unloads it when it is no longer leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kstore.broker.runtime.coordinators.partitions import partition_of
from kstore.broker.state.distribution import Distribution
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.state.metadata.topic_rules import NewTopic
    from kstore.log import Log

__all__ = ["Coordinator", "CoordinatorPartition", "LazyCoordinator", "watch_leadership"]

LOGGER = logging.getLogger(__name__)
RELOAD_SECONDS = 1.0
"""The pause after a failed write before the log is replayed."""
LOAD_AGAIN_SECONDS = 30.0
"""The pause after a load that failed because of the disk, and the longest pause after others."""
LOAD_WAIT_SECONDS = 1.0
"""How long FindCoordinator may wait for a partition to load."""


class LoadFailures:
    """The loads of one partition that failed in a row."""

    def __init__(self) -> None:
        self.count = 0
        self._latest = ""

    def note(self, problem: Exception) -> bool:
        """Count a failed load. Returns whether its error differs from that of the last one."""
        self.count += 1
        latest, self._latest = self._latest, f"{type(problem).__name__}: {problem}"
        return latest != self._latest

    @property
    def pause_s(self) -> float:
        """The pause before the next load, which doubles each time."""
        return float(min(RELOAD_SECONDS * 2 ** min(self.count - 1, 10), LOAD_AGAIN_SECONDS))


class CoordinatorPartition:
    """One partition of a coordinator's topic, from its load until this broker stops serving it."""

    def __init__(
        self, topic: CoordinatorTopic, writer: PartitionWriter, place: TopicPartition
    ) -> None:
        self.topic = topic
        self.writer = writer
        self.place = place
        self.error_code: int = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """NONE once it is loaded; the error for requests before that, or after a failure."""
        self.loading: asyncio.Task[None] | None = None
        self.failures = LoadFailures()
        """Its failed loads, also those of objects that this one replaces."""
        self.replace_later: Callable[[float], object] = lambda pause_s: self.close()
        """Called with seconds, to replace this object after them, because its log could not be
        read or its state is ahead of the log.
        """

    @property
    def log(self) -> Log:
        """The partition's log. Raises KafkaError if this broker does not have it."""
        return self.writer.log_of(self.place)

    def append_ended(self, error_code: int) -> None:
        """Called when a thread has appended a decision. If that failed, the state is ahead of the
        log: this object answers no more requests, and the log is replayed.
        """
        if error_code != ErrorCode.NONE and self.error_code != ErrorCode.NOT_COORDINATOR:
            LOGGER.error("loading %s again: a decision is not in its log", self.place)
            self.close()
            self.replace_later(RELOAD_SECONDS)

    async def load(self, reading: asyncio.Lock) -> None:
        """Replay the log. A bad record makes the partition unavailable. After an error of the disk,
        or if an append failed meanwhile, it is loaded again later. An error that stays the same is
        logged once.

        Records of the former leader are applied, too. They are committed once the followers have
        them.
        """
        from kstore.log.errors import LogError

        try:
            await self.writer.committed(self.place)
            async with reading:
                await self.replay_log()
        except (ValueError, OSError, LogError, KafkaError) as error:
            self.error_code = ErrorCode.NOT_COORDINATOR
            if self.failures.note(error):
                LOGGER.error("%s can't be loaded: %s", self.place, error)
            if isinstance(error, OSError | LogError):
                self.replace_later(LOAD_AGAIN_SECONDS)
            elif isinstance(error, KafkaError) and self.writer.partition(self.place) is not None:
                # An earlier append failed; this broker still leads the partition.
                self.replace_later(self.failures.pause_s)
            return
        # This follows in the same turn of the loop as the last record, so no record is missed.
        if self.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.error_code = ErrorCode.NONE
            self.loaded()

    async def replay_log(self) -> None:
        """Apply every record of the log."""
        raise NotImplementedError

    def loaded(self) -> None:
        """Called after loading, before the first request."""

    def check(self) -> None:
        """Raise KafkaError unless the partition is loaded and this broker serves it."""
        if not self.topic.may_answer():
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self.error_code != ErrorCode.NONE:
            raise error_for(self.error_code)

    def close(self) -> None:
        """Stop serving. Later requests get an error, after which clients look for the
        coordinator.
        """
        self.error_code = ErrorCode.NOT_COORDINATOR
        if self.loading is not None:
            self.loading.cancel()


P = TypeVar("P", bound=CoordinatorPartition)


class Coordinator(Generic[P]):
    """The partitions of a coordinator's topic that this broker serves."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        writer: PartitionWriter,
        make: Callable[[TopicPartition], P],
    ) -> None:
        self.topic = topic
        self.writer = writer
        self.loop = asyncio.get_running_loop()
        self.load_us = Distribution()
        """How long loading took."""
        self._make = make
        self._by_index: dict[int, P] = {}
        self._failures: dict[int, LoadFailures] = {}
        self._begun = False
        self._reading = asyncio.Lock()  # one log at a time, since each uses slices of the loop
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- served partitions ----

    def start(self) -> None:
        """Begin to load the partitions that this broker serves. Until one is loaded, its requests
        get an error.
        """
        self._serve(self.topic.led())

    def note_leadership(self, index: int, *, leads: bool) -> None:
        """Called when this broker becomes the leader of a partition, or is no longer leader."""
        known = self._by_index.get(index)
        if not leads:
            if known is not None:
                del self._by_index[index]
                self._failures.pop(index, None)
                known.close()
        elif known is None or known.error_code == ErrorCode.NOT_COORDINATOR:
            self._by_index.pop(index, None)
            self._serve([index])

    def _serve(self, indexes: Iterable[int]) -> None:
        made = {
            index: self._make(TopicPartition(self.topic.name, index))
            for index in indexes
            if index not in self._by_index
        }
        self._by_index.update(made)
        for partition in sorted(made.values(), key=_log_bytes):
            index = partition.place.partition
            partition.failures = self._failures.get(index, partition.failures)
            partition.replace_later = partial(self._replace_later, partition)
            partition.loading = self.spawn(self._load(partition))
        if made and not self._begun:
            self._begun = True
            self.begin()

    async def _load(self, partition: P) -> None:
        began_ns = perf_counter_ns()
        await partition.load(self._reading)
        index = partition.place.partition
        if partition.error_code == ErrorCode.NONE:
            self.load_us.record((perf_counter_ns() - began_ns) // 1000)
            if self._failures.pop(index, None) is not None:
                LOGGER.info("%s is loaded", partition.place)
        elif partition.failures.count and self._by_index.get(index) is partition:
            self._failures[index] = partition.failures

    def _replace_later(self, partition: P, pause_s: float) -> None:
        self.loop.call_later(pause_s, self._replace, partition)

    def _replace(self, partition: P) -> None:
        index = partition.place.partition
        if self._by_index.get(index) is partition:
            del self._by_index[index]
            self._serve([index])

    def begin(self) -> None:
        """Called when the first partition is served: starts periodic work."""

    async def close(self) -> None:
        """Stop loading and other work in progress. The next start resumes it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for partition in self._by_index.values():
            partition.close()
        self._by_index = {}

    # ---- finding a coordinator ----

    @property
    def partitions(self) -> list[P]:
        """The partitions that this broker serves. Empty if the coordinator was never used."""
        return list(self._by_index.values())

    @property
    def count(self) -> int:
        """How many partitions the topic has. 0 while it does not exist."""
        return self.topic.count(len(self._by_index))

    def find(self, name: str) -> P:
        """The partition of a group or transactional id, loaded or not. Raises KafkaError if this
        broker does not serve it.
        """
        count = self.count
        found = self._by_index.get(partition_of(name, count)) if count else None
        if found is None:
            raise error_for(ErrorCode.NOT_COORDINATOR)
        return found

    async def leader_of(self, name: str) -> int:
        """The broker that serves a group or transactional id. The first call creates the topic.
        Raises KafkaError while there is none.
        """
        await self._make_topic()
        leader = self.known_leader(name)
        if leader == self.topic.node.node_id:
            requested = self._by_index.get(partition_of(name, self.count))
            await self._wait_for(self.topic.awaited(self.partitions, requested))
        return leader

    def known_leader(self, name: str) -> int:
        """The broker that serves a group or transactional id. Raises KafkaError while there is
        none, or no topic.
        """
        count = self.count
        return self.topic.leader(partition_of(name, count) if count else 0)

    async def ensure(self) -> None:
        """Create the topic if it is missing, and wait a moment until this broker's partitions are
        loaded. Raises KafkaError.
        """
        await self._make_topic()
        await self._wait_for(self.topic.awaited(self.partitions, None))

    async def _make_topic(self) -> None:
        if self.topic.is_missing(len(self._by_index)):
            await self.topic.make(self.new_topic())
            self.start()

    def new_topic(self) -> NewTopic:
        """The topic as the settings specify it."""
        raise NotImplementedError

    async def wait_loaded(self) -> None:
        """Wait a moment for loading to end. After that, requests to partitions that are still
        loading are refused.
        """
        await self._wait_for(self._by_index.values())

    async def _wait_for(self, partitions: Iterable[P]) -> None:
        tasks = {item.loading for item in partitions if item.loading is not None}
        unfinished = {task for task in tasks if not task.done()}
        if unfinished:
            await asyncio.wait(unfinished, timeout=LOAD_WAIT_SECONDS)

    # ---- background work ----

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background. A failure is reported. Closing the coordinator cancels
        it.
        """
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            LOGGER.error("%s: pending requests failed", self.topic.name, exc_info=problem)


class Elected(Protocol):
    """A coordinator that is notified of leadership."""

    def note_leadership(self, index: int, *, leads: bool) -> None:
        """Serve the partition from now on, or stop serving it."""


class LazyCoordinator(Protocol):
    """A coordinator that is created once this broker leads a partition of its topic."""

    @property
    def made(self) -> Elected | None:
        """The coordinator if it exists, else None."""

    def __call__(self) -> Elected:
        """The coordinator; the first call creates it."""


def watch_leadership(
    coordinators: Mapping[str, LazyCoordinator],
) -> Callable[[TopicPartition, bool, int], None]:
    """The callback for changes of leadership. It notifies the coordinators of the partitions of
    their topics.
    """

    def note(place: TopicPartition, leads: bool, leader_epoch: int) -> None:
        lazy = coordinators.get(place.topic)
        if lazy is None:
            return
        coordinator = lazy() if leads else lazy.made
        if coordinator is not None:
            coordinator.note_leadership(place.partition, leads=leads)

    return note


def _log_bytes(partition: CoordinatorPartition) -> int:
    try:
        return partition.log.size_bytes
    except KafkaError:
        return 0
