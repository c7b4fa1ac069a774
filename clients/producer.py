"""A synchronous Kafka producer: records are batched per partition and sent in the caller's thread.

There is no background thread. Records leave when enough are waiting, on `flush`, on a delivery's
`result`, and on `close`. One batch per partition is under way, so order holds over retries; with
idempotence (the default) a retried batch is written once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from kstore.clients.core.accumulator import Accumulator, Batch
from kstore.clients.core.partitioner import StickyPartitions, partition_for_key
from kstore.clients.core.produce import produce_request, produce_results
from kstore.clients.network import BrokerConnection, Cluster, backoff
from kstore.errors import (
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    KafkaError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    NetworkError,
    OutOfOrderSequenceNumberError,
    ProtocolError,
    RequestTimedOutError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
    raise_for,
)
from kstore.protocol.produce import ProduceResponse
from kstore.protocol.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kstore.record import compression_for
from kstore.types import Header, TopicPartition

__all__ = ["Delivery", "Producer"]

ACKS = {"all": -1, "-1": -1, -1: -1, "0": 0, 0: 0, "1": 1, 1: 1}
# The broker has lost or outrun the producer's state: only a new producer id helps.
LOST_SEQUENCE = (
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)


class Delivery:
    """What became of one record."""

    __slots__ = ("_done", "_error", "_offset", "_producer", "partition", "topic")

    def __init__(self, producer: Producer, tp: TopicPartition) -> None:
        self.topic, self.partition = tp
        self._producer = producer
        self._offset = -1
        self._error: Exception | None = None
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the record was delivered or given up."""
        return self._done

    @property
    def offset(self) -> int:
        """Its offset once it is delivered; -1 before, and with acks 0."""
        return self._offset

    @property
    def error(self) -> Exception | None:
        """Why it was given up."""
        return self._error

    def result(self) -> int:
        """Send what is waiting, and return the record's offset or raise why it failed."""
        if not self._done:
            self._producer.flush(raise_errors=False)
        if self._error is not None:
            raise self._error
        return self._offset

    def succeed(self, offset: int) -> None:
        """Called by the accumulator."""
        self._offset, self._done = offset, True

    def fail(self, error: Exception) -> None:
        """Called by the accumulator."""
        self._error, self._done = error, True


class Producer:
    """Sends records. Arguments are Kafka's producer configs; times in ms, sizes in bytes.

    acks: "all", 1 or 0 (idempotence needs "all"). Not for use from several threads at once.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "kstore-producer",
        acks: str | int = "all",
        enable_idempotence: bool | None = None,
        compression_type: str = "none",
        batch_size: int = 262_144,
        max_request_size: int = 1_048_576,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
    ) -> None:
        if acks not in ACKS:
            raise ValueError(f"acks {acks!r} is not one of all, 1, 0")
        self._acks = ACKS[acks]
        if enable_idempotence and self._acks != -1:
            raise ValueError(f"enable_idempotence needs acks all, not {acks!r}")
        self._idempotent = self._acks == -1 if enable_idempotence is None else enable_idempotence
        self._max_request_size = max_request_size
        self._max_block_s = max_block_ms / 1000
        self._request_timeout_ms = request_timeout_ms
        self._backoff_ms = (retry_backoff_ms, retry_backoff_max_ms)
        self._sticky = StickyPartitions()
        self._first_error: Exception | None = None
        self._accumulator = Accumulator(
            batch_size=min(batch_size, max_request_size),
            compression=compression_for(compression_type).id,
            delivery_timeout_ms=delivery_timeout_ms,
        )
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._cluster.close()

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> Delivery:
        """Add a record; timestamp in ms since 1970, None means now.

        Raises MessageTooLargeError for a record above max_request_size, and what metadata says of
        the topic (after max_block_ms of trying). What happens later is told by the Delivery.
        """
        if self._closed:
            raise ValueError("the producer is closed")
        count = len(self._topic_partitions(topic))
        tp = TopicPartition(topic, self._choose(topic, key, partition, count))
        size = len(value or b"") + len(key or b"")
        if size > self._max_request_size:
            raise MessageTooLargeError(
                f"a record of {size} bytes is above max_request_size {self._max_request_size}"
            )
        now_ms = time.time_ns() // 1_000_000
        delivery = Delivery(self, tp)
        given = tuple(Header(*header) for header in headers) if headers else ()
        new_batch = self._accumulator.append(
            tp,
            value,
            key,
            now_ms if timestamp is None else timestamp,
            given,
            delivery,
            time.monotonic_ns() // 1_000_000,
        )
        if new_batch and key is None and partition is None:
            self._sticky.next_batch(topic)
        if self._accumulator.buffered_bytes >= self._max_request_size:
            self._send_all()
        return delivery

    def _choose(self, topic: str, key: bytes | None, partition: int | None, count: int) -> int:
        if partition is not None:
            if not 0 <= partition < count:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}"
                )
            return partition
        return (
            self._sticky.partition(topic, count) if key is None else partition_for_key(key, count)
        )

    def _topic_partitions(self, topic: str) -> Sequence[object]:
        view = self._cluster.view.topics.get(topic)
        if view is None:

            def ask() -> Sequence[object]:
                self._cluster.refresh([topic], create=True)
                return self._cluster.view.topic(topic).partitions

            return self._cluster.retrying(ask, self._max_block_s)
        return view.partitions

    def flush(self, *, raise_errors: bool = True) -> None:
        """Send all that is waiting, until every record is delivered or given up.

        Raises the first error of a record given up since the last flush, unless raise_errors is
        False; the Delivery of each record has its own error in any case.
        """
        self._send_all()
        error, self._first_error = self._first_error, None
        if error is not None and raise_errors:
            raise error

    def close(self) -> None:
        """Flush, and close the connections. Raises as flush does; the producer is closed anyway."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            self._cluster.close()

    def _send_all(self) -> None:
        deadline = time.monotonic() + 10**9
        pauses = backoff(deadline, *self._backoff_ms)
        next(pauses)
        while not self._accumulator.is_empty():
            if self._send_round():
                pauses = backoff(deadline, *self._backoff_ms)
                next(pauses)
            else:
                self._refresh()
                next(pauses)

    def _send_round(self) -> bool:
        """One request to each leader that has records waiting; False when nothing came through."""
        progress = self._expire()
        try:
            self._need_producer_id()
        except KafkaError as error:
            return self._no_producer_id(error) or progress
        by_leader: dict[int, list[Batch]] = {}
        for tp in self._accumulator.pending():
            batch = self._accumulator.take(tp)
            try:
                by_leader.setdefault(self._cluster.view.leader(tp), []).append(batch)
            except KafkaError as error:
                progress |= self._failed(batch, error, sent=False)
        under_way = []
        for leader, batches in by_leader.items():
            try:
                under_way.append((self._send(leader, batches), batches))
            except KafkaError as error:
                progress |= self._all_failed(batches, error)
        for connection, batches in under_way:
            progress |= self._receive(connection, batches)
        return progress

    def _expire(self) -> bool:
        now_ms = time.monotonic_ns() // 1_000_000
        late = [self._accumulator.peek(tp) for tp in self._accumulator.pending()]
        late = [batch for batch in late if batch.deadline_ms <= now_ms]
        for batch in late:
            why = f"{batch.tp}: delivery_timeout_ms is over"
            if batch.last_error is not None:
                why += f"; the last attempt failed with {batch.last_error}"
            error = RequestTimedOutError(why)
            self._give_up(batch, error, maybe_written=batch.attempts > 0)
        return bool(late)

    def _need_producer_id(self) -> None:
        accumulator = self._accumulator
        if not self._idempotent or not (
            accumulator.producer_id < 0 or accumulator.needs_producer_id
        ):
            return
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        connection = self._cluster.any_broker()
        answer = self._cluster.ask(connection, request, InitProducerIdResponse)
        raise_for(answer.error_code)
        accumulator.set_producer(answer.producer_id, answer.producer_epoch)

    def _no_producer_id(self, error: KafkaError) -> bool:
        progress = False
        for tp in self._accumulator.pending():
            progress |= self._failed(self._accumulator.peek(tp), error, sent=False)
        return progress

    def _send(self, leader: int, batches: list[Batch]) -> BrokerConnection:
        connection = self._cluster.broker(leader)
        version = connection.versions.choose(0, at_most=13)
        request = produce_request(
            [
                (batch.tp, self._cluster.view.topic_id(batch.tp.topic), batch.data)
                for batch in batches
            ],
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            by_id=version >= 13,
        )
        try:
            connection.send(request, version, answered=self._acks != 0)
        except NetworkError:
            self._cluster.drop(connection)
            raise
        return connection

    def _receive(self, connection: BrokerConnection, batches: list[Batch]) -> bool:
        if self._acks == 0:
            for batch in batches:
                self._accumulator.succeed(batch, -1)
            return True
        try:
            deadline = time.monotonic() + self._request_timeout_ms / 1000
            response = connection.receive(ProduceResponse, deadline)
        except (KafkaError, ProtocolError) as error:
            self._cluster.drop(connection)
            lost = error if isinstance(error, KafkaError) else NetworkError(str(error))
            return self._all_failed(batches, lost)
        results = produce_results(response, self._cluster.view)
        progress = False
        for batch in batches:
            result = results.get(batch.tp)
            if result is None:
                missing = NetworkError(f"the broker's answer does not name {batch.tp}")
                progress |= self._failed(batch, missing, sent=True)
            elif result.error is None or isinstance(result.error, DuplicateSequenceNumberError):
                self._accumulator.succeed(batch, result.base_offset)
                progress = True
            else:
                progress |= self._failed(batch, result.error, sent=True)
        return progress

    def _all_failed(self, batches: list[Batch], error: KafkaError) -> bool:
        given_up = [self._failed(batch, error, sent=True) for batch in batches]
        return any(given_up)

    def _failed(self, batch: Batch, error: KafkaError, *, sent: bool) -> bool:
        """Retry a batch or give it up; True when it was given up."""
        if error.retriable:
            self._accumulator.retry(batch, error)
            return False
        lost = isinstance(error, LOST_SEQUENCE)
        self._give_up(batch, error, maybe_written=lost and sent)
        return True

    def _give_up(self, batch: Batch, error: Exception, *, maybe_written: bool) -> None:
        self._first_error = self._first_error or error
        self._accumulator.fail(batch, error, maybe_written=maybe_written)

    def _refresh(self) -> None:
        topics = sorted({tp.topic for tp in self._accumulator.pending()})
        try:
            self._cluster.refresh(topics)
        except (NetworkError, RequestTimedOutError, LeaderNotAvailableError):
            return  # nobody can be reached now; each batch has its own deadline
