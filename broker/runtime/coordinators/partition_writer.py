"""The logs of a coordinator's partitions: found, appended to, and waited for until followers and
disk have what is in them. Kafka's PartitionWriter. What the records mean is the coordinators'.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kstore.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.log_dirs.fsync_batch import FsyncBatcher
    from kstore.broker.runtime.node import Node
    from kstore.log import Log
    from kstore.types import TopicPartition

__all__ = ["COMMIT_SECONDS", "PartitionWriter", "refusal_of", "settle"]

LOGGER = logging.getLogger(__name__)
COMMIT_SECONDS = 5.0
"""How long an answer waits for the followers; then the client is told to try again."""

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
"""What an append's error is for a client of the coordinator."""


class PartitionWriter:
    """The partitions that this broker leads, as coordinators use them."""

    def __init__(self, node: Node, table: PartitionTable, commits: FsyncBatcher) -> None:
        self._config = node.config
        self._table = table
        self._commits = commits

    @property
    def durable(self) -> bool:
        """Whether a decision counts only once it is on the disk."""
        return bool(self._config["kstore.flush.policy"] == "always")

    def partition(self, place: TopicPartition) -> Partition | None:
        """The partition if this broker leads it and its log is open, else None."""
        found = self._table.partition(place.topic.encode(), place.partition)
        return found if found is not None and found.online else None

    def log_of(self, place: TopicPartition) -> Log:
        """A partition's log; KafkaError if this broker does not have it."""
        partition = self.partition(place)
        if partition is None:
            raise error_for(ErrorCode.NOT_COORDINATOR)
        log: Log = partition.log
        return log

    def append(self, place: TopicPartition, batch: bytes) -> int:
        """Append to a partition's log and return the base offset; KafkaError in a coordinator's
        terms.
        """
        partition = self.partition(place)
        if partition is None:
            raise error_for(ErrorCode.NOT_COORDINATOR)
        try:
            error_code, base_offset, _, _ = partition.append_batches(batch)
        except OSError as error:
            LOGGER.error("%s can't be written: %s", place, error)
            raise error_for(ErrorCode.NOT_COORDINATOR) from error
        problem = refusal_of(error_code)
        if problem is not None:
            raise problem
        return base_offset

    def to_be_committed(self, place: TopicPartition) -> asyncio.Future[int] | None:
        """None if the followers in sync have all that is in the log now, and the disk where answers
        wait for it; else what tells, when they have it or never will, with which error code.
        KafkaError if this broker does not lead.
        """
        partition = self.partition(place)
        if partition is None:
            raise error_for(ErrorCode.NOT_COORDINATOR)
        durable = self.durable
        if partition.replication is None and not durable:
            return None
        log, end = partition.log, partition.log.log_end_offset
        lags = partition.replication is not None and partition.high_watermark < end
        unsynced = durable and log.core.durable_offset < end
        if not lags and not unsynced:
            return None
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        missing = lags + unsynced

        def tell(error_code: int) -> None:
            nonlocal missing
            missing -= 1
            if not told.done() and (error_code != ErrorCode.NONE or not missing):
                told.set_result(error_code)

        if lags:
            partition.when_committed(end, tell)
        if unsynced:
            self._commits.wait(
                [(log, end)],
                lambda done: tell(ErrorCode.NONE if done else ErrorCode.KAFKA_STORAGE_ERROR),
            )
        return told

    async def committed(self, place: TopicPartition, timeout_s: float | None = None) -> None:
        """Wait until the followers in sync have all that is in the log now; KafkaError if that is
        not to be.
        """
        told = self.to_be_committed(place)
        if told is not None:
            await settle(told, timeout_s)


async def settle(told: asyncio.Future[int], timeout_s: float | None = None) -> None:
    """Wait for what `to_be_committed` gave; KafkaError in a coordinator's terms."""
    await asyncio.wait({told}, timeout=timeout_s)
    problem = refusal_of(told.result() if told.done() else ErrorCode.REQUEST_TIMED_OUT)
    if problem is not None:
        raise problem


def refusal_of(error_code: int) -> KafkaError | None:
    """What a client of the coordinator is told of an append's error; None for none."""
    if error_code == ErrorCode.NONE:
        return None
    return error_for(APPEND_ERRORS.get(error_code, error_code))
