"""Transaction markers: control batches that end a transaction on its partitions. The coordinator
decides the end, or an administrator (WriteTxnMarkers).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC
from kstore.broker.state.transactions.state import PREPARE_COMMIT, TV_2, Transaction
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.record.control import ControlType, EndTransactionMarker, control_batch
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node

__all__ = [
    "MARKERS_PER_TURN",
    "PASSED_OVER",
    "LocalMarkers",
    "MarkerWriter",
    "Markers",
    "OffsetsEnded",
]

LOGGER = logging.getLogger(__name__)
MARKERS_PER_TURN = 32
"""How many markers are written before other work on the loop runs."""
COMMIT_SECONDS = 25.0
"""How long followers may take to copy a marker before it is written again."""
RETRY_SECONDS = 1.0
"""The pause before failed markers are tried again."""
PASSED_OVER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Errors that count as success: the partition does not exist, or has a later marker of this
producer.
"""
OffsetsEnded = Callable[[int, int, bool], None]
"""Callback for a marker in a partition of __consumer_offsets: its index, the producer's id, and
whether the transaction was committed.
"""


class MarkerWriter(Protocol):
    """Writes the markers of prepared transactions, on all leaders of their partitions."""

    retry_s: float
    """The pause before failed markers are tried again."""

    def write_now(
        self, prepared: Transaction, coordinator_epoch: int
    ) -> frozenset[TopicPartition] | None:
        """Write all markers in this turn of the loop. Returns the partitions to try again. None:
        nothing was written, because it would take longer than a turn.
        """

    async def write(
        self, prepared: Transaction, coordinator_epoch: int, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Try each place once; returns those that failed."""

    async def close(self) -> None:
        """Stop writing."""


class PendingMarkers(NamedTuple):
    """A producer's markers that a thread will append to one log. `Partition.ending` has them. Until
    they are appended, the producer has no open transaction there. A marker may be sent again before
    the first one is appended.
    """

    markers: int
    producer_epoch: int
    coordinator_epoch: int


def _leave(partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
    """Note that a marker is queued for the log."""
    if partition.ending is None:
        partition.ending = {}
    count, highest, latest = partition.ending.get(producer_id, (0, epoch, coordinator_epoch))
    partition.ending[producer_id] = PendingMarkers(
        count + 1, max(highest, epoch), max(latest, coordinator_epoch)
    )


def _arrive(partition: Partition, producer_id: int) -> None:
    """Note that a queued marker was appended, or has failed."""
    assert partition.ending is not None
    waiting: PendingMarkers = partition.ending.pop(producer_id)
    if waiting.markers > 1:
        partition.ending[producer_id] = waiting._replace(markers=waiting.markers - 1)


class Epochs(Protocol):
    """The last epochs of a producer's markers, in a log or queued for it."""

    @property
    def producer_epoch(self) -> int:
        """The producer's."""

    @property
    def coordinator_epoch(self) -> int:
        """The coordinator's."""


def _refusal(
    entry: Epochs | None, waiting: Epochs | None, epoch: int, coordinator_epoch: int
) -> int:
    """The error with which the log would refuse a marker after the queued ones; NONE if it would
    not.
    """
    for known in (entry, waiting):
        if known is not None and epoch < known.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if known is not None and coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return ErrorCode.NONE


class Markers:
    """Writes markers to the partitions that this broker leads."""

    def __init__(
        self,
        node: Node,
        metadata: MetadataCache,
        partitions: PartitionWriter,
        offsets_ended: OffsetsEnded,
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._partitions = partitions
        self._offsets_ended = offsets_ended
        self._watches: dict[int, list[set[TopicPartition]]] = {}
        """For each watched producer: the partitions on which it got a marker since then."""

    @contextmanager
    def watch(self, producer_id: int) -> Iterator[set[TopicPartition]]:
        """A context. Its value are the partitions that get a marker of this producer while it is
        open.
        """
        ended: set[TopicPartition] = set()
        watches = self._watches.setdefault(producer_id, [])
        watches.append(ended)
        try:
            yield ended
        finally:
            watches[:] = [each for each in watches if each is not ended]
            if not watches:
                self._watches.pop(producer_id, None)

    def has_ended(self, place: TopicPartition, producer_id: int) -> bool:
        """Whether a partition got a marker of a producer since it is watched."""
        return any(place in ended for ended in self._watches.get(producer_id, ()))

    def write(
        self,
        place: TopicPartition,
        producer: tuple[int, int],
        coordinator_epoch: int,
        *,
        committed: bool,
        transaction_version: int = 0,
    ) -> int:
        """End the transaction of a producer (id, epoch) on one partition. Returns an error code.

        If a thread appends the marker, it may still fail; `commit` reports that. A marker that the
        log would refuse is refused here, since the offsets of a coordinator's batches that are
        queued after it are already decided.

        From transaction.version 2 on, a marker's epoch is above that of the batches that it ends
        (KIP-890). A marker that is already written may be repeated. The producer's next transaction
        has the marker's epoch; a repeated marker that arrives late does not end it.
        """
        producer_id, epoch = producer
        partition = self._partitions.partition(place)
        if partition is None:
            if self._metadata.image.partition(*place) is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        entry = partition.log.core.producers.entries.get(producer_id)
        is_open = entry is not None and entry.txn_first_offset >= 0
        if partition.entry.mirror:
            if not is_open:
                return ErrorCode.NONE  # an exact copy has no records of it, so no marker
            if producer_id < partition.entry.least_producer_id:
                # The transaction is one of the source cluster, of a producer with the same id.
                return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if transaction_version >= TV_2 and entry is not None and entry.producer_epoch == epoch:
            if is_open:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if partition.appends_queued:
                # The log has this marker. Batches of the next transaction may be queued.
                return ErrorCode.NONE
        waiting = (partition.ending or {}).get(producer_id)
        refusal = _refusal(entry, waiting, epoch, coordinator_epoch)
        if refusal != ErrorCode.NONE:
            return refusal
        batch = self._batch(producer, coordinator_epoch, committed=committed)

        is_on_the_way = True
        _leave(partition, producer_id, epoch, coordinator_epoch)

        def arrive() -> None:
            nonlocal is_on_the_way
            if is_on_the_way:
                is_on_the_way = False
                _arrive(partition, producer_id)

        def ended(error_code: int) -> None:
            arrive()
            if error_code == ErrorCode.NONE and place.topic == OFFSETS_TOPIC:
                self._offsets_ended(place.partition, producer_id, committed)

        for watch in self._watches.get(producer_id, ()):
            watch.add(place)
        try:
            error_code, _ = self._partitions.write(place, batch, ended)
        except BaseException:
            arrive()
            raise
        if error_code != ErrorCode.NONE:
            arrive()
        return error_code

    def _batch(
        self, producer: tuple[int, int], coordinator_epoch: int, *, committed: bool
    ) -> bytes:
        """A marker of a producer (id, epoch)."""
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        return control_batch(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer[0],
            producer_epoch=producer[1],
            timestamp=self._node.now_ms(),
        )

    def may_write_now(self, places: Iterable[TopicPartition]) -> bool:
        """Whether markers on these partitions can be written without waiting for the disk."""
        sample = self._batch((0, 0), 0, committed=True)
        found = [self._partitions.partition(place) for place in places]
        return all(each is None or each.may_append_now(sample) for each in found)

    async def commit(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Wait until the in-sync replicas have the markers that were just written. Returns an error
        code for each partition that fails.
        """
        found: dict[TopicPartition, int] = {}
        waiting: dict[TopicPartition, asyncio.Future[int]] = {}
        for place in places:
            try:
                waiter = self._partitions.to_be_committed(place)
            except KafkaError:
                found[place] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                if waiter is not None:
                    waiting[place] = waiter
        if waiting:
            await asyncio.wait(waiting.values(), timeout=COMMIT_SECONDS)
        for place, waiter in waiting.items():
            code = waiter.result() if waiter.done() else int(ErrorCode.REQUEST_TIMED_OUT)
            # There are too few in-sync replicas now, but all of them have it.
            if code not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                found[place] = code
        return found


class LocalMarkers:
    """The MarkerWriter of a single broker: it leads all partitions."""

    retry_s = RETRY_SECONDS

    def __init__(self, markers: Markers, *, durable: bool) -> None:
        """``durable``: a marker is complete only once it is on the disk."""
        self._markers = markers
        self._durable = durable

    async def close(self) -> None:
        """Nothing to stop."""

    def write_now(
        self, prepared: Transaction, coordinator_epoch: int
    ) -> frozenset[TopicPartition] | None:
        """Write all markers, if they are few and need not wait for the disk."""
        if self._durable or len(prepared.partitions) > MARKERS_PER_TURN:
            return None
        if not self._markers.may_write_now(prepared.partitions):
            return None
        return self._write_some(prepared, coordinator_epoch, prepared.partitions)[1]

    async def write(
        self, prepared: Transaction, coordinator_epoch: int, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Try each partition once, some in each turn of the loop. Returns those that failed."""
        failed: list[TopicPartition] = []
        for begin in range(0, len(places), MARKERS_PER_TURN):
            some = places[begin : begin + MARKERS_PER_TURN]
            written, missing = self._write_some(prepared, coordinator_epoch, some)
            # A transaction that is stored as completed gets no further markers.
            failed += sorted(missing | set(await self._markers.commit(written)))
            await asyncio.sleep(0)
        return failed

    def _write_some(
        self, prepared: Transaction, coordinator_epoch: int, places: Iterable[TopicPartition]
    ) -> tuple[list[TopicPartition], frozenset[TopicPartition]]:
        """Write some markers. Returns the partitions that got one, and those that did not."""
        committed = prepared.state == PREPARE_COMMIT
        written, failed = [], set()
        for place in places:
            error_code = self._markers.write(
                place,
                (prepared.producer_id, prepared.producer_epoch),
                coordinator_epoch,
                committed=committed,
                transaction_version=prepared.client_version,
            )
            if error_code == ErrorCode.NONE:
                written.append(place)
            elif error_code in PASSED_OVER:
                LOGGER.info(
                    "%s: the marker of %r was not written: %s",
                    place,
                    prepared,
                    error_for(error_code),
                )
            else:
                LOGGER.error(
                    "%s: the marker of %r is missing: %s",
                    place,
                    prepared.transactional_id,
                    error_for(error_code),
                )
                failed.add(place)
        return written, frozenset(failed)
