"""DeleteRecords 0-2 (KIP-107): raises log start offsets, on the leader and then on its followers.
The loop does not wait for the disk.

As in Kafka, a partition is answered once all live replicas have deleted the records. Partitions
that take longer than the request's timeout get REQUEST_TIMED_OUT; their deletion continues. Retired
partitions that become empty may be deleted before the answer, which then reports success.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore._fast.broker.partition import Partition
from kstore.broker.api import RequestContext
from kstore.broker.api.logs.list_offsets import check_leader
from kstore.broker.runtime.slices import Slices
from kstore.errors import ErrorCode
from kstore.log.errors import LogClosedError, LogError
from kstore.protocol.logs.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = ["DeleteRecordsParts", "handle_delete_records"]

HIGH_WATERMARK = -1
NO_EPOCH = -1
PARTITIONS_AT_ONCE = 256
"""The number of partitions whose records are deleted in one call. Other calls of the log dir run
between such calls.
"""
_GONE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
POLL_S = 0.02
"""How often followers are checked. Their fetches show what they have deleted."""


class DeleteRecordsParts(Protocol):
    """The parts of a broker that this handler uses."""

    @property
    def node(self) -> Node:
        """The loop's clock."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that this broker leads."""

    @property
    def image(self) -> MetadataImage:
        """The live brokers."""


class _Waiting(NamedTuple):
    """A partition whose followers have not yet deleted what its leader has deleted."""

    topic: str
    partition: Partition
    offset: int
    partition_epoch: int
    """The partition epoch of the requested partition (KIP-232)."""
    result: DeleteRecordsPartitionResult
    leader_epoch: int
    is_retired: bool
    """Whether it is retired: it accepts no records, and is deleted when all retired partitions of
    its topic are empty.
    """


async def handle_delete_records(
    broker: DeleteRecordsParts, request: DeleteRecordsRequest, ctx: RequestContext
) -> DeleteRecordsResponse:
    """Delete the records before the given offsets; -1 means the high watermark."""
    requested: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for row in topic.partitions:
            requested.setdefault(topic.name, {})[row.partition_index] = row
    slices = Slices()
    begun: list[_Waiting] = []
    response = DeleteRecordsResponse()
    for name, rows in requested.items():
        results = []
        for row in rows.values():
            results.append(_check(broker, name, row, begun))
            await slices.breathe()
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    waiting = await _delete(broker, begun) if begun else []
    if waiting:
        await _when_followed(broker, waiting, request.timeout_ms / 1000)
    return response


def _check(
    broker: DeleteRecordsParts, topic: str, requested: DeleteRecordsPartition, begun: list[_Waiting]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=requested.partition_index, low_watermark=-1
    )
    partition = broker.table.partition(topic.encode(), requested.partition_index)
    result.error_code = check_leader(partition, NO_EPOCH, requested.partition_epoch)
    if partition is None or result.error_code != ErrorCode.NONE:
        return result
    offset = partition.high_watermark if requested.offset == HIGH_WATERMARK else requested.offset
    if partition.entry.internal:
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif "delete" not in partition.log.config.cleanup_policy:
        result.error_code = ErrorCode.POLICY_VIOLATION
    elif offset < 0 or offset > partition.high_watermark:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        is_retired = 0 <= partition.entry.retired_from <= partition.index
        begun.append(
            _Waiting(
                topic, partition, offset, requested.partition_epoch, result,
                partition.leader_epoch, is_retired,
            )
        )  # fmt: skip
    return result


async def _delete(broker: DeleteRecordsParts, begun: list[_Waiting]) -> list[_Waiting]:
    """Delete in the threads of the log dirs. Returns the partitions whose followers are not
    done.
    """
    places: dict[str, list[_Waiting]] = {}
    for each in begun:
        places.setdefault(each.partition.log.log_dir.path, []).append(each)
    pieces = [
        (path, rows[start : start + PARTITIONS_AT_ONCE])
        for path, rows in places.items()
        for start in range(0, len(rows), PARTITIONS_AT_ONCE)
    ]
    # All calls are started at once, so a log dir that hangs does not delay others.
    done = await asyncio.gather(*(_delete_piece(broker, path, rows) for path, rows in pieces))
    return [each for waiting in done for each in waiting]


async def _delete_piece(
    broker: DeleteRecordsParts, path: str, rows: list[_Waiting]
) -> list[_Waiting]:
    pairs = [(each.partition.log, each.offset) for each in rows]
    what = f"deleting records of {pairs[0][0].topic_partition}"
    problems: list[LogError | OSError | None]
    try:
        call = partial(pairs[0][0].log_dir.delete_before, pairs)
        problems = await broker.node.dirs.run(path, what, call)
    except (LogError, OSError) as error:
        problems = [error] * len(rows)
    slices = Slices()
    waiting: list[_Waiting] = []
    for each, problem in zip(rows, problems, strict=True):
        if problem is not None and not _was_stopped(each, problem):
            code = getattr(problem, "error_code", ErrorCode.KAFKA_STORAGE_ERROR)
            each.result.error_code = code
            continue
        if problem is None:
            each.partition.notify()
        if not _is_over(broker, each):
            waiting.append(each)
        await slices.breathe()
    return waiting


def _was_stopped(each: _Waiting, problem: LogError | OSError) -> bool:
    """Whether a deletion failed because this broker no longer leads the partition, which may be a
    retired one that was deleted first.
    """
    code = check_leader(each.partition, NO_EPOCH, each.partition_epoch)
    return isinstance(problem, LogClosedError) and code in _GONE


def _is_over(broker: DeleteRecordsParts, each: _Waiting) -> bool:
    """Set the result of a partition as far as it is known. Returns whether it is final. The
    partition may have been deleted meanwhile, or another one may have its name.
    """
    result = each.result
    result.error_code = check_leader(each.partition, NO_EPOCH, each.partition_epoch)
    result.low_watermark = -1
    if result.error_code == ErrorCode.NONE:
        result.low_watermark = _low_watermark(broker, each.partition)
        return result.low_watermark >= each.offset
    if not each.is_retired or result.error_code not in _GONE:
        return True
    topic = broker.image.topics.get(each.topic)
    if topic is None or topic.topic_id.bytes != each.partition.entry.topic_id:
        return True
    index = each.partition.index
    if index >= len(topic.partitions):
        result.error_code, result.low_watermark = ErrorCode.NONE, each.offset
        return True
    # This broker has stopped the replica. The metadata will show whether it was deleted or moved.
    return topic.partitions[index].leader_epoch != each.leader_epoch


def _low_watermark(broker: DeleteRecordsParts, partition: Partition) -> int:
    """The lowest log start offset of the live replicas."""
    lowest = partition.log_start_offset
    replication = partition.replication
    if replication is not None:
        for node_id in partition.replicas:
            follower = replication.follower(node_id)
            if follower is not None and node_id in broker.image.brokers:
                lowest = min(lowest, follower.log_start_offset)
    return lowest


async def _when_followed(
    broker: DeleteRecordsParts,
    waiting: list[_Waiting],
    timeout_s: float,
) -> None:
    deadline = broker.node.loop.time() + timeout_s
    while waiting:
        waiting = [each for each in waiting if not _is_over(broker, each)]
        if waiting and broker.node.loop.time() >= deadline:
            for each in waiting:
                if each.result.error_code == ErrorCode.NONE:
                    each.result.error_code = ErrorCode.REQUEST_TIMED_OUT
                    each.result.low_watermark = -1
            break
        if waiting:
            await asyncio.sleep(POLL_S)
