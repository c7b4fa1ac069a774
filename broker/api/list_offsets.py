"""ListOffsets, versions 1 to 11: the first, the last, the newest record's, or a timestamp's offset.

Not here: OffsetForLeaderEpoch, which is epochs.py's. Remote storage is none, so its timestamps mean
the local log.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kstore._fast.partition_table import Partition
from kstore.broker.api import RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["check_leader", "handle_list_offsets"]

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
"""Since which version of the request a special timestamp has its meaning."""
FIRST_LEADER_EPOCH = 4
FIRST_OFFSET_NOT_AVAILABLE = 5
CONSUMER = -1
NO_EPOCH = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Found(NamedTuple):
    """An offset, with the timestamp of its record and its epoch where they are known."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def handle_list_offsets(
    broker: Broker, request: ListOffsetsRequest, ctx: RequestContext
) -> ListOffsetsResponse:
    """Answer every partition by itself; one that is named twice is INVALID_REQUEST, said once."""
    counts = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    answered: dict[str, ListOffsetsTopicResponse] = {}
    for topic in request.topics:
        found = _topic(broker, request, topic, counts, ctx)
        if topic.name in answered:
            answered[topic.name].partitions += found.partitions
        elif found.partitions:
            answered[topic.name] = found
    return ListOffsetsResponse(topics=list(answered.values()))


def _topic(
    broker: Broker,
    request: ListOffsetsRequest,
    topic: ListOffsetsTopic,
    counts: Counter[tuple[str, int]],
    ctx: RequestContext,
) -> ListOffsetsTopicResponse:
    answers = []
    known_isolation = request.isolation_level in {READ_UNCOMMITTED, READ_COMMITTED}
    for asked in topic.partitions:
        partition = broker.table.partition(topic.name.encode(), asked.partition_index)
        code = check_leader(partition, asked.current_leader_epoch)
        count = counts.pop((topic.name, asked.partition_index), 0)
        if count == 0:
            continue  # answered already
        if not known_isolation:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        elif count > 1:
            code = ErrorCode.INVALID_REQUEST
        elif ctx.api_version < FIRST_VERSION.get(asked.timestamp, 0) or asked.timestamp < -6:
            code = ErrorCode.UNSUPPORTED_VERSION
        answer = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=code
        )
        if partition is not None:
            answer.partition_epoch = partition.partition_epoch
        if code == ErrorCode.NONE and partition is not None:
            found = _find(partition, asked, request)
            if found is None:
                modern = ctx.api_version >= FIRST_OFFSET_NOT_AVAILABLE
                answer.error_code = (
                    ErrorCode.OFFSET_NOT_AVAILABLE if modern else ErrorCode.LEADER_NOT_AVAILABLE
                )
                found = Found()
            answer.offset, answer.timestamp = found.offset, found.timestamp
            if ctx.api_version >= FIRST_LEADER_EPOCH:
                answer.leader_epoch = found.leader_epoch
        answers.append(answer)
    return ListOffsetsTopicResponse(name=topic.name, partitions=answers)


def check_leader(partition: Partition | None, current_leader_epoch: int) -> int:
    """The error code for a client with that idea of the leader; -1 checks no epoch."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not partition.online:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch == NO_EPOCH:
        return ErrorCode.NONE
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > partition.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def _find(
    partition: Partition, asked: ListOffsetsPartition, request: ListOffsetsRequest
) -> Found | None:
    """What is asked for; None where a new leader can't tell yet."""
    log = partition.log
    end = partition.log_end_offset
    lags = False
    if request.replica_id == CONSUMER:
        committed = request.isolation_level == READ_COMMITTED
        end = partition.last_stable_offset if committed else partition.high_watermark
        lags = _lags(partition)
    if asked.timestamp == LATEST:
        return None if lags else Found(end, -1, partition.leader_epoch)
    if asked.timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return Found(partition.log_start_offset, -1, _epoch(partition, partition.log_start_offset))
    if asked.timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return Found()
    if asked.timestamp == MAX_TIMESTAMP:
        found = log.largest_timestamp()
    else:
        found = log.offset_for_timestamp(asked.timestamp)
    if found is None or found[0] >= end:
        return None if lags else Found()
    return Found(found[0], found[1], _epoch(partition, found[0]))


def _lags(partition: Partition) -> bool:
    """Whether a new leader's high watermark is still below where its epoch began: what consumers
    were told by the leader before may be above it.
    """
    replication = partition.replication
    return replication is not None and partition.high_watermark < replication.epoch_start_offset


def _epoch(partition: Partition, offset: int) -> int:
    epoch: int | None = partition.log.core.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch
