"""InitializeShareGroupState 0, ReadShareGroupState 0, WriteShareGroupState 0-1,
DeleteShareGroupState 0 and ReadShareGroupStateSummary 0-1: the state of share-partitions (KIP-932).

Each partition of a request gets its own result, in the order of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kstore.broker.runtime.slices import Slices
from kstore.broker.state.shares.persisted import SharePartitionKey, ShareWrite, StateBatch
from kstore.errors import KafkaError
from kstore.protocol.shares.state import (
    DeletePartition,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializePartition,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    PartitionResult,
    ReadPartition,
    ReadResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadTopicResult,
    StateBatchRow,
    SummaryResult,
    SummaryTopicResult,
    TopicResult,
    WritePartition,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator

__all__ = [
    "ShareStateParts",
    "handle_delete_share_group_state",
    "handle_initialize_share_group_state",
    "handle_read_share_group_state",
    "handle_read_share_group_state_summary",
    "handle_write_share_group_state",
]

A = TypeVar("A")
T = TypeVar("T")
ROWS_AT_ONCE = 32
"""Other requests run after this many rows."""


class ShareStateParts(Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def share_coordinator(self) -> Lazy[ShareCoordinator]:
        """The share coordinator."""


async def handle_initialize_share_group_state(
    broker: ShareStateParts, request: InitializeShareGroupStateRequest, ctx: RequestContext
) -> InitializeShareGroupStateResponse:
    """Initialize the state of each share-partition."""
    coordinator = broker.share_coordinator()

    async def initialize(key: SharePartitionKey, row: InitializePartition) -> PartitionResult:
        await coordinator.initialize(key, row.state_epoch, row.start_offset)
        return PartitionResult(partition=row.partition)

    results = await _each(request, initialize, PartitionResult, TopicResult)
    return InitializeShareGroupStateResponse(results=results)


async def handle_read_share_group_state(
    broker: ShareStateParts, request: ReadShareGroupStateRequest, ctx: RequestContext
) -> ReadShareGroupStateResponse:
    """Return the state of each share-partition to its new leader."""
    coordinator = broker.share_coordinator()

    async def read(key: SharePartitionKey, row: ReadPartition) -> ReadResult:
        state = await coordinator.read(key, row.leader_epoch)
        return ReadResult(
            partition=row.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[StateBatchRow(**batch._asdict()) for batch in state.batches],
        )

    results = await _each(request, read, ReadResult, ReadTopicResult)
    return ReadShareGroupStateResponse(results=results)


async def handle_write_share_group_state(
    broker: ShareStateParts, request: WriteShareGroupStateRequest, ctx: RequestContext
) -> WriteShareGroupStateResponse:
    """Change the state of each share-partition."""
    coordinator = broker.share_coordinator()

    async def write(key: SharePartitionKey, row: WritePartition) -> PartitionResult:
        batches = tuple(
            StateBatch(
                item.first_offset, item.last_offset, item.delivery_state, item.delivery_count
            )
            for item in row.state_batches
        )
        change = ShareWrite(
            row.state_epoch,
            row.leader_epoch,
            row.start_offset,
            row.delivery_complete_count,
            batches,
        )
        await coordinator.write(key, change)
        return PartitionResult(partition=row.partition)

    results = await _each(request, write, PartitionResult, TopicResult)
    return WriteShareGroupStateResponse(results=results)


async def handle_delete_share_group_state(
    broker: ShareStateParts, request: DeleteShareGroupStateRequest, ctx: RequestContext
) -> DeleteShareGroupStateResponse:
    """Delete the state of each share-partition."""
    coordinator = broker.share_coordinator()

    async def delete(key: SharePartitionKey, row: DeletePartition) -> PartitionResult:
        await coordinator.delete(key)
        return PartitionResult(partition=row.partition)

    results = await _each(request, delete, PartitionResult, TopicResult)
    return DeleteShareGroupStateResponse(results=results)


async def handle_read_share_group_state_summary(
    broker: ShareStateParts, request: ReadShareGroupStateSummaryRequest, ctx: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    """Return the start offset of each share-partition."""
    coordinator = broker.share_coordinator()

    async def summarize(key: SharePartitionKey, row: ReadPartition) -> SummaryResult:
        summary = await coordinator.read_summary(key, row.leader_epoch)
        return SummaryResult(partition=row.partition, **summary._asdict())

    results = await _each(request, summarize, SummaryResult, SummaryTopicResult)
    return ReadShareGroupStateSummaryResponse(results=results)


async def _each(
    request: Any,
    ask: Callable[[SharePartitionKey, Any], Coroutine[Any, Any, A]],
    failure: Callable[..., A],
    topic_result: Callable[..., T],
) -> list[T]:
    """The result of each partition of a request. As in Kafka, the group "" gets no results."""
    if not request.group_id:
        return []

    async def answer(topic_id: Any, row: Any) -> A:
        try:
            return await ask(SharePartitionKey(request.group_id, topic_id, row.partition), row)
        except KafkaError as error:
            return failure(
                partition=row.partition, error_code=error.code, error_message=error.args[0]
            )

    requested = [(topic.topic_id, row) for topic in request.topics for row in topic.partitions]
    answers: list[A] = []
    slices = Slices()
    for start in range(0, len(requested), ROWS_AT_ONCE):
        some = requested[start : start + ROWS_AT_ONCE]
        if len(some) == 1:
            answers.append(await answer(*some[0]))
        else:
            answers += await asyncio.gather(*(answer(*each) for each in some))
        await slices.breathe()
    rows = iter(answers)
    return [
        topic_result(topic_id=topic.topic_id, partitions=[next(rows) for _ in topic.partitions])
        for topic in request.topics
    ]
