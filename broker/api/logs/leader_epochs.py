"""OffsetForLeaderEpoch 2-4 (KIP-101, KIP-279, KIP-320): the end offset of a leader epoch in a log.
And LeaderEpochForPartition, an extension (KIP-253): the leader epochs that the other partitions had
when a partition was added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Protocol

from kstore.broker.api import RequestContext
from kstore.broker.api.logs.list_offsets import check_leader
from kstore.broker.coordination.contraction_nodes import ContractionNode, read_contraction
from kstore.broker.coordination.partition_nodes import PartitionNode, read_node
from kstore.broker.coordination.store import StoreError
from kstore.broker.runtime.log_dirs.visible_end import visible_end
from kstore.broker.state.metadata.topic_rules import TopicError, check_name
from kstore.errors import ErrorCode
from kstore.protocol.logs.leader_epoch_for_partition import (
    LeaderEpochForPartitionRequest,
    LeaderEpochForPartitionResponse,
    LeaderEpochForPartitionResult,
    LeaderEpochForPartitionTopicResult,
    PriorLeaderEpoch,
)
from kstore.protocol.logs.list_offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.node import Node

__all__ = ["EpochParts", "handle_leader_epoch_for_partition", "handle_offset_for_leader_epoch"]


class EpochParts(Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def node(self) -> Node:
        """The process."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that this broker knows."""

    @property
    def store(self) -> Store:
        """The coordination store."""


def handle_offset_for_leader_epoch(
    broker: EpochParts, request: OffsetForLeaderEpochRequest, ctx: RequestContext
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    """Return the largest epoch that is not above the requested one, and its end offset (exclusive);
    -1 and -1 if none is known. If the client asks for visible records, the log is read.
    """
    response = OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(broker, topic.topic, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    reading = [
        _cut_to_visible(broker, topic.topic, row)
        for topic, answered in zip(request.topics, response.topics, strict=True)
        for requested, row in zip(topic.partitions, answered.partitions, strict=True)
        if requested.visible_only and row.error_code == ErrorCode.NONE
    ]
    return _when_read(reading, response) if reading else response


async def _when_read(
    reading: Sequence[Awaitable[None]], response: OffsetForLeaderEpochResponse
) -> OffsetForLeaderEpochResponse:
    await asyncio.gather(*reading)
    return response


async def _cut_to_visible(broker: EpochParts, topic: str, row: EpochEndOffset) -> None:
    """Limit the response to visible records. OFFSET_NOT_AVAILABLE while their end is not known."""
    partition = broker.table.partition(topic.encode(), row.partition)
    end = None if partition is None else await visible_end(broker.node, partition, row.end_offset)
    if end is None:
        row.error_code, row.leader_epoch, row.end_offset = ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1
    else:
        row.end_offset = end


def _end(broker: EpochParts, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = broker.table.partition(topic.encode(), requested.partition)
    code = check_leader(partition, requested.current_leader_epoch, requested.partition_epoch)
    answer = EpochEndOffset(partition=requested.partition, error_code=code)
    if partition is None or code != ErrorCode.NONE:
        return answer
    # This comes before the end is looked up, since a thread may append meanwhile.
    queued, log_end = partition.appends_queued, partition.log_end_offset
    epoch, end = partition.end_offset_for_epoch(requested.leader_epoch)
    # Records that wait for the disk belong to the leader epoch in which they arrived. If it has
    # ended, they are still before its end.
    grows = requested.leader_epoch < partition.leader_epoch and end >= log_end
    if queued and (requested.visible_only or grows):
        answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
        return answer
    answer.leader_epoch, answer.end_offset = epoch, end
    return answer


async def handle_leader_epoch_for_partition(
    broker: EpochParts, request: LeaderEpochForPartitionRequest, ctx: RequestContext
) -> LeaderEpochForPartitionResponse:
    """Return the prior partitions of each partition, from its node in the store. A group must read
    each prior partition up to the offset that OffsetForLeaderEpoch returns for its epoch before it
    reads the partition.
    """
    try:
        answer: LeaderEpochForPartitionResponse = await broker.node.run_blocking(
            lambda: _priors(broker.store, request)
        )
    except StoreError as problem:
        broker.node.report(
            f"the coordination store can't say which partitions existed before: {problem}"
        )
        return _unanswered(request, ErrorCode.REQUEST_TIMED_OUT)
    return answer


def _unanswered(
    request: LeaderEpochForPartitionRequest, code: int
) -> LeaderEpochForPartitionResponse:
    """A response with the same error for every partition."""
    return LeaderEpochForPartitionResponse(
        topics=[
            LeaderEpochForPartitionTopicResult(
                name=topic.name,
                partitions=[
                    LeaderEpochForPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _priors(
    store: Store, request: LeaderEpochForPartitionRequest
) -> LeaderEpochForPartitionResponse:
    """Read the nodes. Runs in the store's thread."""
    response = LeaderEpochForPartitionResponse()
    for topic in request.topics:
        found = LeaderEpochForPartitionTopicResult(name=topic.name)
        contraction = read_contraction(store, topic.name) if _is_name(topic.name) else None
        for index in topic.partitions:
            result = LeaderEpochForPartitionResult(partition_index=index)
            node = read_node(store, topic.name, index) if _is_name(topic.name) else None
            if node is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                result.partition_epoch = node.partition_epoch
                result.prior_leader_epochs = [
                    PriorLeaderEpoch(partition_index=prior, leader_epoch=epoch)
                    for prior, epoch in _before(index, node, contraction)
                ]
            found.partitions.append(result)
        response.topics.append(found)
    return response


def _before(
    index: int, node: PartitionNode, contraction: ContractionNode | None
) -> tuple[tuple[int, int], ...]:
    """The partitions that must be read before a partition. For the remaining partitions of a
    contraction these are the retired ones; a retired partition has none.
    """
    if contraction is None:
        return node.prior_leader_epochs
    return (*node.prior_leader_epochs, *contraction.retired) if index < contraction.first else ()


def _is_name(topic: str) -> bool:
    """Whether the text can be a topic's name, and so a part of a node's path."""
    try:
        check_name(topic)
    except TopicError:
        return False
    return True
