"""The logs of a coordinator's partitions (Kafka's PartitionWriter): finds them, appends to them,
and waits for followers and the disk. The coordinators know what the records mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstore.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore._fast.log.append_queue import CallbackJob
    from kstore.broker.runtime.log_dirs.fsync_batch import FsyncBatcher
    from kstore.broker.runtime.node import Node
    from kstore.log import Log
    from kstore.types import TopicPartition

__all__ = ["COMMIT_SECONDS", "PartitionWriter", "refusal_of", "settle"]

LOGGER = logging.getLogger(__name__)
COMMIT_SECONDS = 5.0
"""How long a response waits for the followers. After that the client gets an error and retries."""

APPEND_ERRORS: dict[int, int] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error of an append to the error that a client of the coordinator gets."""


def _nothing(error_code: int) -> None:
    """The default callback, which does nothing."""


class PartitionWriter:
    """Writes to the partitions that this broker leads, on behalf of coordinators."""

    def __init__(self, node: Node, table: PartitionTable, commits: FsyncBatcher) -> None:
        self._config = node.config
        self._table = table
        self._commits = commits
        self._unwritten: dict[TopicPartition, deque[list[Callable[[int], None]]]] = {}
        """The callbacks of appends in threads, in order."""

    @property
    def durable(self) -> bool:
        """Whether a decision takes effect only once it is on the disk."""
        return bool(self._config["kstore.flush.policy"] == "always")

    def partition(self, place: TopicPartition) -> Partition | None:
        """The partition, or None if this broker does not lead it or its log is not open."""
        found = self._table.partition(place.topic.encode(), place.partition)
        return found if found is not None and found.online else None

    def log_of(self, place: TopicPartition) -> Log:
        """A partition's log. Raises KafkaError if this broker does not have it."""
        partition = self.partition(place)
        if partition is None:
            raise error_for(ErrorCode.NOT_COORDINATOR)
        log: Log = partition.log
        return log

    def append(
        self, place: TopicPartition, batch: bytes, ended: Callable[[int], None] = _nothing
    ) -> int:
        """Append to a partition's log and return the base offset. Raises KafkaError with a
        coordinator's error.

        If the append may have to wait for the disk, a thread does it, and this returns the offset
        that it will get if it succeeds. ``ended`` is called with an error code when the result is
        known: at once or later, but before `to_be_committed` completes.
        """
        error_code, base_offset = self._write(place, batch, ended, alone=True)
        problem = refusal_of(error_code)
        if problem is not None:
            raise problem
        return base_offset

    def write(
        self, place: TopicPartition, batch: bytes, ended: Callable[[int], None]
    ) -> tuple[int, int]:
        """As `append`, but for any partition. Returns Kafka's error code and the base offset. If
        clients write to the partition, too, a thread may append the batch at a later offset.
        """
        return self._write(place, batch, ended, alone=False)

    def _write(
        self, place: TopicPartition, batch: bytes, ended: Callable[[int], None], *, alone: bool
    ) -> tuple[int, int]:
        """``alone``: clients do not write to the partition. Then the offset of a queued append is
        known, unless the log refuses a marker that is queued before it.
        """
        partition = self.partition(place)
        if partition is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if not partition.may_append_now(batch):
            if len(batch) > partition.log.core.max_message_bytes:
                # Otherwise the thread would refuse it later, when the state is already ahead of the
                # log.
                return ErrorCode.MESSAGE_TOO_LARGE, -1
            error_code, base_offset = partition.append_later(
                batch, lambda job: self._appended(place, base_offset if alone else None, job)
            )
            if error_code == ErrorCode.NONE:
                self._unwritten.setdefault(place, deque()).append([ended])
            return error_code, base_offset
        try:
            error_code, base_offset, _, _ = partition.append_batches(batch)
        except OSError as error:
            LOGGER.error("%s can't be written: %s", place, error)
            return ErrorCode.KAFKA_STORAGE_ERROR, -1
        if error_code == ErrorCode.NONE:
            ended(error_code)
        return error_code, base_offset

    def _appended(self, place: TopicPartition, expected: int | None, job: CallbackJob) -> None:
        """Called when a thread has finished an append, or has failed: calls the callbacks."""
        waiting = self._unwritten[place].popleft()
        if not self._unwritten[place]:
            del self._unwritten[place]
        error_code = job.error_code
        if job.problem is not None:
            LOGGER.error("%s can't be written: %s", place, job.problem)
            error_code = ErrorCode.KAFKA_STORAGE_ERROR
        elif error_code == ErrorCode.NONE and expected not in (None, job.base_offset):
            LOGGER.error(
                "%s: a batch is at offset %d, not %d: another append there was refused",
                place, job.base_offset, expected,
            )  # fmt: skip
            error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # clients try again after the reload
        for callback in waiting:
            callback(error_code)

    def to_be_committed(self, place: TopicPartition) -> asyncio.Future[int] | None:
        """Return None if everything in the log now is on the in-sync replicas, and also on the disk
        if responses wait for it. Otherwise return a future of an error code, which is done when it
        is there or never will be. Raises KafkaError if this broker does not lead the partition.
        """
        partition = self.partition(place)
        if partition is None:
            raise error_for(ErrorCode.NOT_COORDINATOR)
        if self._unwritten and place in self._unwritten:
            return self._when_written(place)
        return self._when_committed(partition)

    def _when_committed(self, partition: Partition) -> asyncio.Future[int] | None:
        durable = self.durable
        if partition.replication is None and not durable:
            return None
        log, end = partition.log, partition.log.log_end_offset
        lags = partition.replication is not None and partition.high_watermark < end
        unsynced = durable and log.core.durable_offset < end
        if not lags and not unsynced:
            return None
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        missing = lags + unsynced

        def callback(error_code: int) -> None:
            nonlocal missing
            missing -= 1
            if not future.done() and (error_code != ErrorCode.NONE or not missing):
                future.set_result(error_code)

        if lags:
            partition.when_committed(end, callback)
        if unsynced:
            self._commits.wait(
                [(log, end)],
                lambda done: callback(ErrorCode.NONE if done else ErrorCode.KAFKA_STORAGE_ERROR),
            )
        return future

    def _when_written(self, place: TopicPartition) -> asyncio.Future[int]:
        """The result of `to_be_committed`, once threads have appended everything that is queued
        now.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def written(error_code: int) -> None:
            if future.done():
                return
            partition, later = self.partition(place), None
            if error_code == ErrorCode.NONE and partition is None:
                error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif error_code == ErrorCode.NONE and partition is not None:
                later = self._when_committed(partition)
            if later is None:
                future.set_result(error_code)
            else:
                later.add_done_callback(committed)

        def committed(later: asyncio.Future[int]) -> None:
            if not future.done():
                future.set_result(later.result())

        self._unwritten[place][-1].append(written)
        return future

    async def committed(self, place: TopicPartition, timeout_s: float | None = None) -> None:
        """Wait until the in-sync replicas have everything that is in the log now. Raises KafkaError
        if that fails.
        """
        future = self.to_be_committed(place)
        if future is not None:
            await settle(future, timeout_s)


async def settle(future: asyncio.Future[int], timeout_s: float | None = None) -> None:
    """Wait for the future of `to_be_committed`. Raises KafkaError with a coordinator's error."""
    await asyncio.wait({future}, timeout=timeout_s)
    problem = refusal_of(future.result() if future.done() else ErrorCode.REQUEST_TIMED_OUT)
    if problem is not None:
        raise problem


def refusal_of(error_code: int) -> KafkaError | None:
    """The error that a client of the coordinator gets for an append's error. None for NONE."""
    if error_code == ErrorCode.NONE:
        return None
    return error_for(APPEND_ERRORS.get(error_code, error_code))
