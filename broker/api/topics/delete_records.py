"""DeleteRecords 0-2 (KIP-107): raises log start offsets, on the leader and then on its followers.

A partition is answered once every replica that is alive has let go of what was to be deleted, as in
Kafka; those that take longer than the request's timeout are REQUEST_TIMED_OUT, and go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore._fast.broker.partition import Partition
from kstore.broker.api import RequestContext
from kstore.broker.api.logs.list_offsets import check_leader
from kstore.errors import ErrorCode
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
POLL_S = 0.02
"""How often followers are looked at: they tell what they have deleted by their fetches."""


class DeleteRecordsParts(Protocol):
    """What this handler is given."""

    @property
    def node(self) -> Node:
        """The loop's clock."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that are led here."""

    @property
    def image(self) -> MetadataImage:
        """The brokers that are alive."""


class _Waiting(NamedTuple):
    """A partition whose followers have not deleted yet what the leader has."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult


def handle_delete_records(
    broker: DeleteRecordsParts, request: DeleteRecordsRequest, ctx: RequestContext
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """Delete what lies before the offsets asked for; -1 means the high watermark."""
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for row in topic.partitions:
            asked.setdefault(topic.name, {})[row.partition_index] = row
    waiting: list[_Waiting] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name, partitions=[_delete(broker, name, row, waiting) for row in rows.values()]
            )
            for name, rows in asked.items()
        ]
    )
    if not waiting:
        return response
    return _when_followed(broker, waiting, request.timeout_ms / 1000, response)


def _delete(
    broker: DeleteRecordsParts, topic: str, asked: DeleteRecordsPartition, waiting: list[_Waiting]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    partition = broker.table.partition(topic.encode(), asked.partition_index)
    result.error_code = check_leader(partition, NO_EPOCH)
    if partition is None or result.error_code != ErrorCode.NONE:
        return result
    offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
    if partition.entry.internal or "delete" not in partition.log.config.cleanup_policy:
        result.error_code = ErrorCode.POLICY_VIOLATION
    elif offset < 0 or offset > partition.high_watermark:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        partition.log.delete_before(offset)
        partition.notify()
        result.low_watermark = _low_watermark(broker, partition)
        if result.low_watermark < offset:
            waiting.append(_Waiting(partition, offset, result))
    return result


def _low_watermark(broker: DeleteRecordsParts, partition: Partition) -> int:
    """The lowest log start offset of the replicas that are alive."""
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
    response: DeleteRecordsResponse,
) -> DeleteRecordsResponse:
    deadline = broker.node.loop.time() + timeout_s
    while waiting:
        left: list[_Waiting] = []
        for each in waiting:
            code = check_leader(each.partition, NO_EPOCH)
            low = _low_watermark(broker, each.partition) if code == ErrorCode.NONE else -1
            each.result.error_code, each.result.low_watermark = code, low
            if code == ErrorCode.NONE and low < each.offset:
                left.append(each)
        waiting = left
        if waiting and broker.node.loop.time() >= deadline:
            for each in waiting:
                each.result.error_code = ErrorCode.REQUEST_TIMED_OUT
                each.result.low_watermark = -1
            break
        if waiting:
            await asyncio.sleep(POLL_S)
    return response
