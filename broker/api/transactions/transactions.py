"""AddOffsetsToTxn 0-4, EndTxn 0-5 and TxnOffsetCommit 0-5: requests of transactional producers to
their coordinators. AddPartitionsToTxn is in add_partitions.py.

broker/state decides what is allowed. This file checks which partitions exist, and converts errors
to those that a version knows.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from kstore.broker.api.transactions.add_partitions import fenced_as_known
from kstore.broker.runtime.coordinators.partitions import partition_of
from kstore.broker.runtime.groups.partition_lookup import NamedPartition, waiting_commits
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC
from kstore.broker.runtime.transactions.produce import error_for_version, has_transaction
from kstore.broker.state.groups.coordinator.txn_offset_commit import txn_offset_commit_failure
from kstore.broker.state.transactions.state import TV_0, TV_2
from kstore.broker.state.transactions.steps import Claim, Decision
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.schema import ZERO_UUID
from kstore.protocol.transactions.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.transactions.parts import TransactionalOffsetsParts
    from kstore.broker.runtime.groups.partition_lookup import PartitionLookup

__all__ = [
    "handle_add_offsets_to_txn",
    "handle_end_txn",
    "handle_txn_offset_commit",
]

FIRST_END_WITH_NEW_EPOCH = 5
FIRST_COMMIT_THAT_ADDS = 5
FIRST_COMMIT_WITH_ABORTABLE = 4
FIRST_COMMIT_THAT_KNOWS_LOADING = 2
RETRIABLE_FOR_COMMIT = {ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


async def handle_add_offsets_to_txn(
    broker: TransactionalOffsetsParts, request: AddOffsetsToTxnRequest, ctx: RequestContext
) -> AddOffsetsToTxnResponse:
    """Add the group's partition of __consumer_offsets to the transaction."""
    coordinator = broker.transactions()
    try:
        place = await _group_place(broker, request.group_id)
        code = coordinator.add_partitions(
            request.transactional_id,
            Claim(request.producer_id, request.producer_epoch),
            frozenset({place}),
            TV_0,
        )
        if code == ErrorCode.NONE:
            await coordinator.settled(request.transactional_id)
    except KafkaError as error:
        code = error.code
    return AddOffsetsToTxnResponse(error_code=fenced_as_known(code, ctx.api_version))


async def _group_place(broker: TransactionalOffsetsParts, group_id: str) -> TopicPartition:
    groups = broker.groups()
    if not groups.count:
        await groups.ensure()
    return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, groups.count))


def handle_end_txn(
    broker: TransactionalOffsetsParts, request: EndTxnRequest, ctx: RequestContext
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    """Commit or abort a transaction. From version 5 on, the response has the producer's next
    epoch.
    """
    coordinator = broker.transactions()
    client_version = TV_2 if ctx.api_version >= FIRST_END_WITH_NEW_EPOCH else TV_0

    def end() -> Decision | Awaitable[Decision]:
        return coordinator.end_transaction(
            request.transactional_id,
            Claim(request.producer_id, request.producer_epoch),
            client_version,
            committed=request.committed,
        )

    try:
        decided = end() if client_version < TV_2 else coordinator.with_producer_id(end)
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    if isinstance(decided, Decision):
        return _ended(decided, ctx.api_version)
    return _ended_later(cast("Awaitable[Decision]", decided), ctx.api_version)


async def _ended_later(deciding: Awaitable[Decision], api_version: int) -> EndTxnResponse:
    try:
        return _ended(await deciding, api_version)
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)


def _ended(decision: Decision, api_version: int) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=fenced_as_known(decision.error_code, api_version),
        producer_id=decision.producer.producer_id,
        producer_epoch=decision.producer.producer_epoch,
    )


async def handle_txn_offset_commit(
    broker: TransactionalOffsetsParts, request: TxnOffsetCommitRequest, ctx: RequestContext
) -> TxnOffsetCommitResponse:
    """Commit the offsets of partitions that exist, in the producer's transaction."""
    known, refused = _split_by_existence(broker, request)
    group_id, lookup = request.group_id, broker.partition_lookup
    try:
        if group_id and lookup is not None and (refused or waiting_commits(lookup, group_id)):
            known, refused = await _await_known(broker, lookup(), request)
        response = await _commit(broker, request.replaced(topics=known), ctx)
    except KafkaError as error:
        response = txn_offset_commit_failure(request, error.code)
    else:
        response = TxnOffsetCommitResponse(topics=_merged(refused, response.topics))
    if ctx.api_version < FIRST_COMMIT_THAT_KNOWS_LOADING:
        _hide_loading(response)
    return response


async def _await_known(
    broker: TransactionalOffsetsParts, lookup: PartitionLookup, request: TxnOffsetCommitRequest
) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]:
    """As `_split_by_existence`, but after the group's earlier commits and with the newest metadata,
    since the client may know a partition earlier than this broker. Raises KafkaError if this broker
    is not the group's coordinator, or if the earlier commits take too long.
    """
    broker.groups().find(request.group_id).check()
    named = [
        NamedPartition(topic.name, ZERO_UUID, row.partition_index)
        for topic in request.topics
        for row in topic.partitions
    ]
    try:
        async with lookup.line(request.group_id):
            known_all = await lookup.await_known(named)
    except TimeoutError as late:
        text = f"earlier commits of group {request.group_id} wait: try again"
        raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text) from late
    if known_all:
        return _split_by_existence(broker, request)
    return _split_by_existence(broker, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


async def _commit(
    broker: TransactionalOffsetsParts, request: TxnOffsetCommitRequest, ctx: RequestContext
) -> TxnOffsetCommitResponse:
    """Commit the offsets of known partitions."""
    if not request.topics:
        return TxnOffsetCommitResponse()
    if not request.group_id:
        return txn_offset_commit_failure(request, ErrorCode.INVALID_GROUP_ID)
    try:
        # Watch until the offsets are in the log, since a marker may come first.
        with broker.markers().watch(request.producer_id):
            code = await _admit_offsets(broker, request, ctx.api_version)
            if code == ErrorCode.NONE:
                answer = await broker.groups().handle(request.group_id, request, ctx)
                return cast(TxnOffsetCommitResponse, answer)
    except KafkaError as error:
        code = error.code
    return txn_offset_commit_failure(request, code)


async def _admit_offsets(
    broker: TransactionalOffsetsParts, request: TxnOffsetCommitRequest, version: int
) -> int:
    """Add the group's partition of __consumer_offsets to the transaction, or check that it belongs
    to it.
    """
    place = await _group_place(broker, request.group_id)
    groups = broker.groups()
    claim = Claim(request.producer_id, request.producer_epoch)
    if has_transaction(groups.writer.partition(place), claim):
        return ErrorCode.NONE
    adds = version >= FIRST_COMMIT_THAT_ADDS
    verifies = broker.config["transaction.partition.verification.enable"]
    if not (adds or verifies):
        return ErrorCode.NONE
    await groups.loaded_partition(request.group_id)  # otherwise nothing is added
    answers = await broker.admission().ask(
        request.transactional_id, claim, frozenset({place}), adds=adds
    )
    code = answers[place]
    return error_for_version(code, abortable=version >= FIRST_COMMIT_WITH_ABORTABLE)


def _split_by_existence(
    broker: TransactionalOffsetsParts,
    request: TxnOffsetCommitRequest,
    error_code: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]:
    """The topics with known partitions, and the response's rows for the others, which have
    errors.
    """
    known: list[TxnOffsetCommitRequestTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        there: list[TxnOffsetCommitRequestPartition] = []
        missing: list[TxnOffsetCommitRequestPartition] = []
        for row in topic.partitions:
            found = broker.image.partition(topic.name, row.partition_index)
            (missing if found is None else there).append(row)
        if missing:
            rows = [
                TxnOffsetCommitResponsePartition(
                    partition_index=row.partition_index, error_code=error_code
                )
                for row in missing
            ]
            refused.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        if there:
            known.append(topic.replaced(partitions=there))
    return known, refused


def _hide_loading(response: TxnOffsetCommitResponse) -> None:
    """Replace COORDINATOR_LOAD_IN_PROGRESS, which producers of Kafka before 2.0 do not handle
    (KAFKA-7296).
    """
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _merged(
    first: list[TxnOffsetCommitResponseTopic], second: list[TxnOffsetCommitResponseTopic]
) -> list[TxnOffsetCommitResponseTopic]:
    """Merge entries of the same topic."""
    topics: dict[str, TxnOffsetCommitResponseTopic] = {}
    for topic in (*first, *second):
        present = topics.setdefault(topic.name, topic)
        if present is not topic:
            present.partitions += topic.partitions
    return list(topics.values())
