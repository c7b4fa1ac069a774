"""What all coordinators do with the partitions of their topics: which partition keeps a name, how
its log is read at the start and appended to, and when what is in it is committed. What the records
mean is theirs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from kstore._fast.record.murmur2 import string_hash
from kstore._fast.record.records import Record, decode
from kstore.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker
    from kstore.log import Log
    from kstore.types import TopicPartition

__all__ = [
    "COMMIT_SECONDS",
    "TURN_SECONDS",
    "append",
    "committed",
    "log_of",
    "partition_of",
    "read_records",
    "refusal_of",
    "settle",
    "to_be_committed",
]

LOGGER = logging.getLogger(__name__)
LOAD_BYTES = 256 * 1024
TURN_SECONDS = 0.002
"""How long loading keeps the loop before others have their turn."""
RECORDS_PER_CLOCK_LOOK = 32
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


def partition_of(name: str, partitions: int) -> int:
    """Where Kafka keeps a group or a transactional id: Java's String.hashCode, made positive,
    modulo the partitions.
    """
    code = abs(string_hash(name))
    return 0 if code == 1 << 31 else code % partitions


def log_of(broker: Broker, place: TopicPartition) -> Log:
    """A partition's log; KafkaError if this broker does not have it."""
    partition = broker.partition(place)
    if partition is None:
        raise error_for(ErrorCode.NOT_COORDINATOR)
    log: Log = partition.log
    return log


async def read_records(log: Log) -> AsyncIterator[Record]:
    """All records of a log, control records too, to the end that it has when they are read; others
    have their turn on the loop in between.

    LogError or ValueError for a log that can't be read.
    """
    clock = asyncio.get_running_loop().time
    turn_ends = clock() + TURN_SECONDS
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        # What a leader finds, or appends, counts before its followers have it.
        data, _ = log.core.read(offset, log.log_end_offset, LOAD_BYTES)
        records = decode(data, start_offset=offset, control=True)
        for count, record in enumerate(records):
            yield record
            if count % RECORDS_PER_CLOCK_LOOK == 0 and clock() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock() + TURN_SECONDS
        if records.next_offset is None:
            return  # compaction left nothing behind here
        offset = records.next_offset


def append(broker: Broker, place: TopicPartition, batch: bytes) -> int:
    """Append to a partition's log and return the base offset; KafkaError in a coordinator's
    terms.
    """
    try:
        outcome = broker.append(place, batch)
    except OSError as error:
        LOGGER.error("%s can't be written: %s", place, error)
        raise error_for(ErrorCode.NOT_COORDINATOR) from error
    problem = refusal_of(outcome.error_code)
    if problem is not None:
        raise problem
    return outcome.base_offset


def to_be_committed(broker: Broker, place: TopicPartition) -> asyncio.Future[int] | None:
    """None if the followers in sync have all that is in the log now, and the disk where answers
    wait for it; else what tells, when they have it or never will, with which error code. KafkaError
    if this broker does not lead.
    """
    partition = broker.partition(place)
    if partition is None:
        raise error_for(ErrorCode.NOT_COORDINATOR)
    durable = broker.config["kstore.flush.policy"] == "always"
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
        broker.commits.wait(
            [(log, end)],
            lambda done: tell(ErrorCode.NONE if done else ErrorCode.KAFKA_STORAGE_ERROR),
        )
    return told


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


async def committed(broker: Broker, place: TopicPartition, timeout_s: float | None = None) -> None:
    """Wait until the followers in sync have all that is in the log now; KafkaError if that is not
    to be.
    """
    told = to_be_committed(broker, place)
    if told is not None:
        await settle(told, timeout_s)
