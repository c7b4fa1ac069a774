"""DescribeTransactions, ListTransactions 0-2, DescribeProducers and WriteTxnMarkers 1-2: find and
end transactions that hang (KIP-664).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.security.access import allowed, permitted
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.metadata.topic_rules import TopicError, check_name
from kstore.broker.state.transactions.coordinator_shard import TransactionFilter
from kstore.broker.state.transactions.state import STATE_NAMES, Transaction
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.transactions.admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kstore.protocol.transactions.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.transactions.parts import TransactionAdminParts

__all__ = [
    "handle_describe_producers",
    "handle_describe_transactions",
    "handle_list_transactions",
    "handle_write_txn_markers",
]

FIRST_MARKERS_WITH_TRANSACTION_VERSION = 2
PARTITIONS_PER_TURN = 32
STEPS_ON_THE_LOOP = 1_000_000
"""The limit of steps for one match. They take at most 10 ms. Ids of usual length never need so
many.
"""


async def handle_describe_transactions(
    broker: TransactionAdminParts, request: DescribeTransactionsRequest, ctx: RequestContext
) -> DescribeTransactionsResponse:
    """Return the state of each transactional id, with the topics that the client may describe."""
    coordinator = broker.transactions()
    response = DescribeTransactionsResponse()
    for transactional_id in request.transactional_ids:
        try:
            partition = coordinator.partition(transactional_id)
            state = partition.shard.describe(transactional_id)
            await coordinator.settled(transactional_id)
            names = {topic.topic for topic in state.topics}
            known = permitted(broker, ctx, AclOperation.DESCRIBE, AclResourceType.TOPIC, names)
            state.topics = [topic for topic in state.topics if topic.topic in known]
        except KafkaError as error:
            state = DescribeTransactionsResponseTransactionState(
                transactional_id=transactional_id, error_code=error.code
            )
        response.transaction_states.append(state)
    return response


async def handle_list_transactions(
    broker: TransactionAdminParts, request: ListTransactionsRequest, ctx: RequestContext
) -> ListTransactionsResponse:
    """List the transactional ids that match the filters and that the client may describe."""
    try:
        wanted = TransactionFilter.of(request)
    except ValueError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    partitions = broker.transactions().partitions
    if any(item.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for item in partitions):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    known = set(STATE_NAMES.values())
    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in known]
    )
    now_ms, slices = broker.node.now_ms(), Slices()
    for partition in partitions:
        for item in list(partition.shard.transactions.values()):
            # The pattern comes last, so it is not matched with ids that the client may not
            # describe.
            if (
                wanted.accepts(item, now_ms)
                and _shown(broker, ctx, item.transactional_id)
                and await _matches(wanted, item.transactional_id)
            ):
                response.transaction_states.append(_listed(item))
            await slices.breathe()
    return response


async def _matches(wanted: TransactionFilter, transactional_id: str) -> bool:
    """Whether an id matches the pattern. A long id is matched in a thread, since RE2 releases the
    GIL.
    """
    if wanted.cost(transactional_id) > STEPS_ON_THE_LOOP:
        return await asyncio.to_thread(wanted.matches, transactional_id)
    return wanted.matches(transactional_id)


def _shown(broker: TransactionAdminParts, ctx: RequestContext, transactional_id: str) -> bool:
    kind = AclResourceType.TRANSACTIONAL_ID
    return allowed(broker, ctx, AclOperation.DESCRIBE, kind, transactional_id, quiet=True)


def _listed(transaction: Transaction) -> ListTransactionsResponseTransactionState:
    return ListTransactionsResponseTransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=STATE_NAMES[transaction.state],
    )


async def handle_describe_producers(
    broker: TransactionAdminParts, request: DescribeProducersRequest, ctx: RequestContext
) -> DescribeProducersResponse:
    """Return the producers of each partition's log, and where their open transactions begin."""
    response = DescribeProducersResponse()
    for requested in request.topics:
        topic = TopicResponse(name=requested.name)
        response.topics.append(topic)
        problem = _name_problem(requested.name)
        for count, index in enumerate(requested.partition_indexes, 1):
            if problem is not None:
                answer = PartitionResponse(
                    partition_index=index,
                    error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                    error_message=problem,
                )
            else:
                answer = _producers(broker, TopicPartition(requested.name, index))
            topic.partitions.append(answer)
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
    return response


def _name_problem(topic: str) -> str | None:
    """The error of a topic's name."""
    try:
        check_name(topic)
    except TopicError as error:
        return str(error)
    return None


def _producers(broker: TransactionAdminParts, place: TopicPartition) -> PartitionResponse:
    partition = broker.table.partition(place.topic.encode(), place.partition)
    if partition is None or not partition.online:
        known = broker.image.partition(*place) is not None
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = None if place.topic in broker.image.topics else str(error_for(code))
        return PartitionResponse(
            partition_index=place.partition, error_code=code, error_message=message
        )
    return PartitionResponse(
        partition_index=place.partition,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.txn_first_offset,
            )
            for entry in partition.log.core.producers.entries.values()
        ],
    )


async def handle_write_txn_markers(
    broker: TransactionAdminParts, request: WriteTxnMarkersRequest, ctx: RequestContext
) -> WriteTxnMarkersResponse:
    """End transactions on partitions, for another broker or an administrator. The response is sent
    once the markers can no longer be lost.
    """
    response, markers = WriteTxnMarkersResponse(), broker.markers()
    written: dict[TopicPartition, list[WritableTxnMarkerPartitionResult]] = {}
    versioned = ctx.api_version >= FIRST_MARKERS_WITH_TRANSACTION_VERSION
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for requested in marker.topics:
            topic = WritableTxnMarkerTopicResult(name=requested.name)
            result.topics.append(topic)
            for index in requested.partition_indexes:
                place = TopicPartition(requested.name, index)
                code = markers.write(
                    place,
                    (marker.producer_id, marker.producer_epoch),
                    marker.coordinator_epoch,
                    committed=marker.transaction_result,
                    transaction_version=marker.transaction_version if versioned else 0,
                )
                row = WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                topic.partitions.append(row)
                if code == ErrorCode.NONE:
                    written.setdefault(place, []).append(row)
        await asyncio.sleep(0)
    for place, code in (await markers.commit(written)).items():
        for row in written[place]:
            row.error_code = code
    return response
