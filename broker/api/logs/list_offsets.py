"""ListOffsets 1-11: the log start offset, the end offset, the offset of the record with the largest
timestamp, or the offset for a timestamp.

OffsetForLeaderEpoch is in leader_epochs.py. There is no remote storage, so the special timestamps
for it apply to the local log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore._fast.broker.partition import Partition
from kstore.broker.api import RequestContext
from kstore.broker.runtime.log_dirs.cold_reads import Reading, finished, search_timestamp
from kstore.broker.state.metadata.image import partition_epoch_error
from kstore.errors import ErrorCode
from kstore.log.timestamps import Look
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.unpacking import Unpacking

__all__ = ["OffsetParts", "check_leader", "handle_list_offsets"]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Special timestamp to the first version of the request that has it."""
FIRST_LEADER_EPOCH = 4
FIRST_OFFSET_NOT_AVAILABLE = 5
CONSUMER = -1
NO_EPOCH = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class OffsetParts(Protocol):
    """The parts of a broker that ListOffsets uses."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that this broker knows."""

    @property
    def unpacking(self) -> Lazy[Unpacking]:
        """The thread that unpacks compressed batches."""


SearchResult = tuple[int, int] | Look | None
"""The result of a search by timestamp: a record's offset and timestamp, or a batch to unpack."""


class Found(NamedTuple):
    """An offset, with its record's timestamp and leader epoch if known."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def handle_list_offsets(
    broker: OffsetParts, request: ListOffsetsRequest, ctx: RequestContext
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Answer each partition separately. A partition that is named twice gets one INVALID_REQUEST.

    If data is not in memory, or a large compressed batch must be unpacked, returns an awaitable.
    """
    counts = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    answered: dict[str, ListOffsetsTopicResponse] = {}
    lookups: list[_OffsetLookup] = []
    for topic in request.topics:
        found = _topic(broker, request, topic, counts, ctx, lookups)
        if topic.name in answered:
            answered[topic.name].partitions += found.partitions
        elif found.partitions:
            answered[topic.name] = found
    response = ListOffsetsResponse(topics=list(answered.values()))
    return _answer_later(broker, response, lookups) if lookups else response


class _OffsetLookup(NamedTuple):
    """A partition whose result needs the disk, or a batch that must be unpacked."""

    partition: Partition
    requested: ListOffsetsPartition
    request: ListOffsetsRequest
    answer: ListOffsetsPartitionResponse
    search: Reading[SearchResult]
    waits: Awaitable[object] | Look
    """The state of the search: an awaitable, or a batch to unpack."""
    api_version: int


async def _answer_later(
    broker: OffsetParts, response: ListOffsetsResponse, lookups: list[_OffsetLookup]
) -> ListOffsetsResponse:
    for row in lookups:
        partition = row.partition
        found: SearchResult
        if isinstance(row.waits, Look):
            found = row.waits
        else:
            await row.waits
            found = await finished(row.search)
            row.answer.error_code = _check(partition, row.requested)
        while isinstance(found, Look) and row.answer.error_code == ErrorCode.NONE:
            look = found
            found = await broker.unpacking().look(look.find)
            row.answer.error_code = _check(partition, row.requested)
            if found is None and row.answer.error_code == ErrorCode.NONE:
                found = await finished(
                    search_timestamp(partition.log, look.timestamp_ms, look.next_offset)
                )
                row.answer.error_code = _check(partition, row.requested)
        if row.answer.error_code == ErrorCode.NONE:
            assert not isinstance(found, Look)
            _fill(row.answer, _seen(partition, row.request, found), row.api_version)
    return response


def _topic(
    broker: OffsetParts,
    request: ListOffsetsRequest,
    topic: ListOffsetsTopic,
    counts: Counter[tuple[str, int]],
    ctx: RequestContext,
    lookups: list[_OffsetLookup],
) -> ListOffsetsTopicResponse:
    answers = []
    known_isolation = request.isolation_level in {READ_UNCOMMITTED, READ_COMMITTED}
    for requested in topic.partitions:
        partition = broker.table.partition(topic.name.encode(), requested.partition_index)
        code = _check(partition, requested)
        count = counts.pop((topic.name, requested.partition_index), 0)
        if count == 0:
            continue  # answered already
        if not known_isolation:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        elif count > 1:
            code = ErrorCode.INVALID_REQUEST
        elif (
            ctx.api_version < FIRST_VERSION.get(requested.timestamp, 0) or requested.timestamp < -6
        ):
            code = ErrorCode.UNSUPPORTED_VERSION
        answer = ListOffsetsPartitionResponse(
            partition_index=requested.partition_index, error_code=code
        )
        if partition is not None and ctx.extended:
            answer.partition_epoch = partition.partition_epoch
        if code == ErrorCode.NONE and partition is not None:
            timestamp = _timestamp(partition, requested)
            if timestamp < 0:
                _fill(answer, _find(partition, requested, request), ctx.api_version)
            else:
                search = search_timestamp(partition.log, timestamp)
                try:
                    found: SearchResult | Awaitable[object] = next(search)
                except StopIteration as done:
                    found = done.value
                if found is None or (isinstance(found, tuple) and not isinstance(found, Look)):
                    _fill(answer, _seen(partition, request, found), ctx.api_version)
                else:
                    lookups.append(
                        _OffsetLookup(
                            partition, requested, request, answer, search, found, ctx.api_version
                        )
                    )
        answers.append(answer)
    return ListOffsetsTopicResponse(name=topic.name, partitions=answers)


def _fill(answer: ListOffsetsPartitionResponse, found: Found | None, api_version: int) -> None:
    """Write the result into the response."""
    if found is None:
        modern = api_version >= FIRST_OFFSET_NOT_AVAILABLE
        answer.error_code = (
            ErrorCode.OFFSET_NOT_AVAILABLE if modern else ErrorCode.LEADER_NOT_AVAILABLE
        )
        found = Found()
    answer.offset, answer.timestamp = found.offset, found.timestamp
    if api_version >= FIRST_LEADER_EPOCH:
        answer.leader_epoch = found.leader_epoch


def _check(partition: Partition | None, requested: ListOffsetsPartition) -> int:
    return check_leader(partition, requested.current_leader_epoch, requested.partition_epoch)


def check_leader(
    partition: Partition | None, current_leader_epoch: int, partition_epoch: int = NO_EPOCH
) -> int:
    """Check the leader epoch and the partition epoch (KIP-232) that a client sends. Returns an
    error code. -1 skips a check.
    """
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if not partition.online:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    code = partition_epoch_error(partition_epoch, partition.partition_epoch)
    if code != ErrorCode.NONE or current_leader_epoch == NO_EPOCH:
        return code
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > partition.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def _find(
    partition: Partition, requested: ListOffsetsPartition, request: ListOffsetsRequest
) -> Found | None:
    """The offset, if no record must be searched. None if a new leader does not know it yet."""
    if requested.timestamp == LATEST:
        end, lags = _end(partition, request)
        return None if lags else Found(end, -1, partition.leader_epoch)
    if requested.timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return Found(partition.log_start_offset, -1, _epoch(partition, partition.log_start_offset))
    if requested.timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return Found()
    return _seen(partition, request, None)


def _timestamp(partition: Partition, requested: ListOffsetsPartition) -> int:
    """The timestamp to search for. Negative: no search."""
    if requested.timestamp == MAX_TIMESTAMP:
        found: int = partition.log.largest_timestamp_ms()
        return found
    return requested.timestamp


def _seen(
    partition: Partition, request: ListOffsetsRequest, found: tuple[int, int] | None
) -> Found | None:
    """The result, limited to what the client may see."""
    end, lags = _end(partition, request)
    if found is None or found[0] >= end:
        return None if lags else Found()
    return Found(found[0], found[1], _epoch(partition, found[0]))


def _end(partition: Partition, request: ListOffsetsRequest) -> tuple[int, bool]:
    """The end of what the client may see, and whether a new leader does not know it yet."""
    if request.replica_id != CONSUMER:
        return partition.log_end_offset, False
    committed = request.isolation_level == READ_COMMITTED
    end = partition.last_stable_offset if committed else partition.high_watermark
    return end, _lags(partition)


def _lags(partition: Partition) -> bool:
    """Whether a new leader's high watermark is still below the start of its epoch. The former
    leader may have sent a higher one to consumers.
    """
    replication = partition.replication
    return replication is not None and partition.high_watermark < replication.epoch_start_offset


def _epoch(partition: Partition, offset: int) -> int:
    """The leader epoch of the record at the offset; at the log end, that of the next record."""
    if offset == partition.log_end_offset and partition.log_start_offset == offset:
        return partition.leader_epoch
    epoch: int | None = partition.log.core.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch
