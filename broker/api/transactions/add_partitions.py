"""AddPartitionsToTxn 0-5: adds partitions to a transaction, or verifies that they belong to it.

Up to version 3 the client is a producer with one transaction. From version 4 on it is a broker,
with many transactions (KIP-890). Either all partitions of a transaction are added or none, so all
are checked first. broker/state decides what is allowed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.requests.turns import in_turns, sliced
from kstore.broker.api.security.access import allowed
from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
from kstore.broker.state.transactions.state import TV_0, TV_2
from kstore.broker.state.transactions.steps import Claim
from kstore.broker.state.work import ROWS_BETWEEN, Work, each, each_work
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.transactions.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.transactions.parts import AddPartitionsParts

__all__ = ["fenced_as_known", "handle_add_partitions_to_txn"]

FIRST_BROKER_VERSION = 4
FIRST_WITH_PRODUCER_FENCED = 2
RETIRED = ErrorCode.INVALID_PARTITION_COUNT
"""The error for a partition that no longer accepts records because of a contraction: the records
belong to another partition now.
"""
Codes = list[int]
"""An error code for each partition of a transaction, in the order of the request."""
Found = list[tuple[AddPartitionsToTxnTransaction, Codes]]


def handle_add_partitions_to_txn(
    broker: AddPartitionsParts, request: AddPartitionsToTxnRequest, ctx: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """Add partitions to transactions, or verify that they belong to them. In a cluster, and if
    responses wait for the disk, the response is sent once the decision can no longer be lost.
    """
    found = sliced(broker, ctx, _decide(broker, request, ctx))
    if isinstance(found, Awaitable):
        return _added_later(broker, found, ctx)
    if not broker.transactions().waits:
        return sliced(broker, ctx, _added(found, ctx.api_version))
    return _added_settled(broker, found, ctx)


async def _added_later(
    broker: AddPartitionsParts, deciding: Awaitable[Found], ctx: RequestContext
) -> AddPartitionsToTxnResponse:
    return await _added_settled(broker, await deciding, ctx)


async def _added_settled(
    broker: AddPartitionsParts, found: Found, ctx: RequestContext
) -> AddPartitionsToTxnResponse:
    coordinator = broker.transactions()
    for number, (requested, codes) in enumerate(found, 1):
        if ErrorCode.NONE in codes:
            try:
                await coordinator.settled(requested.transactional_id)
            except KafkaError as error:
                codes[:] = [error.code] * len(codes)
        if number % ROWS_BETWEEN == 0:
            await broker.turns.next()
    return await in_turns(broker, ctx, _added(found, ctx.api_version))


# ---- the result for each partition ----


def _decide(
    broker: AddPartitionsParts, request: AddPartitionsToTxnRequest, ctx: RequestContext
) -> Work[Found]:
    """Add the partitions that can be added."""
    coordinator = broker.transactions()

    def add(
        requested: AddPartitionsToTxnTransaction,
    ) -> Work[tuple[AddPartitionsToTxnTransaction, Codes]]:
        version = TV_0 if ctx.api_version < FIRST_BROKER_VERSION else TV_2
        retired = RETIRED if ctx.extended else ErrorCode.POLICY_VIOLATION
        return requested, (yield from _add(broker, coordinator, requested, version, retired))

    if ctx.api_version >= FIRST_BROKER_VERSION:
        return (yield from each_work(add, request.transactions))
    requested = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    denied = yield from _denied(broker, requested, ctx)
    if any(denied):
        return [(requested, (yield from _none_added(denied)))]
    return [(yield from add(requested))]


def _add(
    broker: AddPartitionsParts,
    coordinator: TransactionCoordinator,
    requested: AddPartitionsToTxnTransaction,
    client_version: int,
    retired: int,
) -> Work[Codes]:
    """The result for each partition. If one does not exist or no longer accepts records, none is
    added. ``retired`` is the error code for a partition that no longer accepts records.
    """
    places = yield from _places(requested)
    name, claim = requested.transactional_id, Claim(requested.producer_id, requested.producer_epoch)

    def verify(place: TopicPartition) -> int:
        return coordinator.verify_partitions(name, claim, frozenset({place}))[place]

    def absent(place: TopicPartition) -> int:
        topic = broker.image.topics.get(place.topic)
        if topic is None or not 0 <= place.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.takes_records(place.partition) or requested.verify_only:
            return ErrorCode.NONE
        return retired if verify(place) != ErrorCode.NONE else ErrorCode.NONE

    missing = yield from each(absent, places)
    if any(missing):
        return (yield from _none_added(missing))

    if requested.verify_only:
        return (yield from each(verify, places))
    whole = frozenset(places)
    yield
    code = coordinator.add_partitions(name, claim, whole, client_version)
    return [code] * len(places)


def _places(requested: AddPartitionsToTxnTransaction) -> Work[list[TopicPartition]]:
    def listed() -> Iterator[TopicPartition]:
        for topic in requested.topics:
            for index in topic.partitions:
                yield TopicPartition(topic.name, index)

    return (yield from each(lambda place: place, listed()))


def _none_added(problems: Codes) -> Work[Codes]:
    """The error codes if some partitions cannot be added, so that none is."""
    return (yield from each(lambda code: code or ErrorCode.OPERATION_NOT_ATTEMPTED, problems))


def _denied(
    broker: AddPartitionsParts, requested: AddPartitionsToTxnTransaction, ctx: RequestContext
) -> Work[Codes]:
    """The errors if there are partitions that the client may not write to, with all other errors.
    Empty if it may write to all.
    """
    if broker.authorizer is None:
        return []
    names = {topic.name for topic in requested.topics}

    def writable(name: str) -> bool:
        return allowed(broker, ctx, AclOperation.WRITE, AclResourceType.TOPIC, name)

    may_write = dict(zip(names, (yield from each(writable, names)), strict=True))
    if all(may_write.values()):
        return []

    def problem(place: TopicPartition) -> int:
        if not may_write[place.topic]:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if broker.image.partition(*place) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    return (yield from each(problem, (yield from _places(requested))))


# ---- the answer ----


def _added(found: Found, version: int) -> Work[AddPartitionsToTxnResponse]:
    """The response in the form of its version."""

    def topics(
        requested: AddPartitionsToTxnTransaction, codes: Codes
    ) -> Work[list[AddPartitionsToTxnTopicResult]]:
        left = iter(codes)
        return (yield from each_work(lambda topic: _topic(topic, left, version), requested.topics))

    def result(
        item: tuple[AddPartitionsToTxnTransaction, Codes],
    ) -> Work[AddPartitionsToTxnResult]:
        rows = yield from topics(*item)
        name = item[0].transactional_id
        return AddPartitionsToTxnResult(transactional_id=name, topic_results=rows)

    if version < FIRST_BROKER_VERSION:
        rows = yield from topics(*found[0])
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
    results = yield from each_work(result, found)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _topic(
    topic: AddPartitionsToTxnTopic, codes: Iterator[int], version: int
) -> Work[AddPartitionsToTxnTopicResult]:
    def row(index: int) -> AddPartitionsToTxnPartitionResult:
        code = fenced_as_known(next(codes), version)
        return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)

    rows = yield from each(row, topic.partitions)
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows)


def fenced_as_known(code: int, api_version: int) -> int:
    """Replace the error for a fenced producer, since old clients know only
    INVALID_PRODUCER_EPOCH.
    """
    if code == ErrorCode.PRODUCER_FENCED and api_version < FIRST_WITH_PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
