"""Transaction markers: control batches that end a transaction on its partitions. Who decides that
it ends is the coordinator, or an administrator (WriteTxnMarkers).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kstore.broker.runtime.coordinators.partitions import to_be_committed
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC
from kstore.broker.state.transactions.state import PREPARE_COMMIT, TV_2, Transaction
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.record.control import ControlType, EndTransactionMarker, control_batch
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["MARKERS_PER_TURN", "PASSED_OVER", "commit_markers", "write_marker", "write_markers"]

LOGGER = logging.getLogger(__name__)
MARKERS_PER_TURN = 32
"""How many markers are written before other work on the loop has its turn."""
COMMIT_SECONDS = 25.0
"""How long followers may take for a marker; then it is written again."""
PASSED_OVER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""The partition is gone, or knows a later end of this producer's transactions already."""


def write_markers(
    broker: Broker,
    prepared: Transaction,
    coordinator_epoch: int,
    places: Iterable[TopicPartition] | None = None,
) -> frozenset[TopicPartition]:
    """Write a prepared transaction's markers to ``places``, or to all its partitions; those that
    are to be tried again are returned.
    """
    committed = prepared.state == PREPARE_COMMIT
    failed = set()
    for place in prepared.partitions if places is None else places:
        error_code = write_marker(
            broker,
            place,
            (prepared.producer_id, prepared.producer_epoch),
            coordinator_epoch,
            committed=committed,
        )
        if error_code in PASSED_OVER:
            LOGGER.info("%s: no marker of %r: %s", place, prepared, error_for(error_code))
        elif error_code != ErrorCode.NONE:
            LOGGER.error(
                "%s: the marker of %r is missing: %s",
                place,
                prepared.transactional_id,
                error_for(error_code),
            )
            failed.add(place)
    return frozenset(failed)


def write_marker(
    broker: Broker,
    place: TopicPartition,
    producer: tuple[int, int],
    coordinator_epoch: int,
    *,
    committed: bool,
    transaction_version: int = 0,
) -> int:
    """End the transaction of a producer (id, epoch) on one partition; an error code.

    From transaction.version 2 on a marker's epoch is above that of the batches it ends (KIP-890);
    one that was written already may be repeated.
    """
    producer_id, epoch = producer
    partition = broker.partition(place)
    if partition is None:
        known = broker.image.partition(*place) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if transaction_version >= TV_2:
        entry = partition.log.core.producers.entries.get(producer_id)
        if entry is not None and entry.producer_epoch == epoch and entry.txn_first_offset >= 0:
            return ErrorCode.INVALID_PRODUCER_EPOCH
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    batch = control_batch(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=broker.now_ms(),
    )
    try:
        error_code = broker.append(place, batch).error_code
    except OSError as problem:
        LOGGER.error("%s can't be written: %s", place, problem)
        return ErrorCode.KAFKA_STORAGE_ERROR
    groups = broker.groups.made
    if error_code == ErrorCode.NONE and place.topic == OFFSETS_TOPIC and groups is not None:
        groups.transaction_ended(place.partition, producer_id, committed=committed)
    return error_code


async def commit_markers(
    broker: Broker, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Wait until the followers in sync have the markers just written; an error code for each place
    where that is not to be.
    """
    found: dict[TopicPartition, int] = {}
    waiting: dict[TopicPartition, asyncio.Future[int]] = {}
    for place in places:
        try:
            told = to_be_committed(broker, place)
        except KafkaError:
            found[place] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            if told is not None:
                waiting[place] = told
    if waiting:
        await asyncio.wait(waiting.values(), timeout=COMMIT_SECONDS)
    for place, told in waiting.items():
        code = told.result() if told.done() else int(ErrorCode.REQUEST_TIMED_OUT)
        # Too few in sync by now, but those that are have it.
        if code not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            found[place] = code
    return found
