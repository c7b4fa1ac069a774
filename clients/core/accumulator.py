"""Records on their way to the brokers: batches per partition, in order, at most one under way each.

One batch under way per partition keeps order over retries, with or without idempotence; a batch
that is sent again has the same bytes and sequence number. Nothing is sent from here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from kstore.record import RecordBatchBuilder
from kstore.types import Header, TopicPartition

__all__ = ["Accumulator", "Batch", "Receipt"]

# A record costs at most this much beside its key, value and headers.
RECORD_OVERHEAD_BYTES = 30


class Receipt(Protocol):
    """What is told how a record fared; `Delivery` of the producer."""

    def succeed(self, offset: int) -> None:
        """The record is in the log at this offset (-1: acks 0, nobody said)."""

    def fail(self, error: Exception) -> None:
        """The record will not be sent any more."""


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that are sent together; `data` is set once it is sealed."""

    tp: TopicPartition
    builder: RecordBatchBuilder
    deadline_ms: int
    receipts: list[Receipt] = field(default_factory=list)
    data: bytes = b""
    base_sequence: int = -1
    attempts: int = 0
    last_error: Exception | None = None


class Accumulator:
    """The batches of all partitions, and the sequence numbers when the producer is idempotent."""

    def __init__(self, *, batch_size: int, compression: int, delivery_timeout_ms: int) -> None:
        self._batch_size = batch_size
        self._compression = compression
        self._delivery_timeout_ms = delivery_timeout_ms
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._sent: set[TopicPartition] = set()
        self._sequences: dict[TopicPartition, int] = {}
        self._producer_id = -1
        self._producer_epoch = -1
        self.buffered_bytes = 0
        self.needs_producer_id = False

    @property
    def producer_id(self) -> int:
        """The producer id that new batches carry; -1: not idempotent."""
        return self._producer_id

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        """A new producer id or epoch: sequences begin at 0 again, for batches not sealed yet."""
        self._producer_id, self._producer_epoch = producer_id, producer_epoch
        self._sequences.clear()
        self.needs_producer_id = False

    def append(
        self,
        tp: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        timestamp: int,
        headers: tuple[Header, ...],
        receipt: Receipt,
        now_ms: int,
    ) -> bool:
        """Add a record; True when that began a new batch although the partition had one."""
        size = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        if headers:
            size += sum(10 + len(h.key) * 3 + len(h.value or b"") for h in headers)
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = deque()
        batch = queue[-1] if queue else None
        full = batch is not None and batch.builder.size_bytes + size > self._batch_size
        if batch is None or full or batch.data:
            builder = RecordBatchBuilder(compression=self._compression)
            batch = Batch(tp, builder, now_ms + self._delivery_timeout_ms)
            queue.append(batch)
        builder = batch.builder
        before = builder.size_bytes
        builder.append(value, key, timestamp, headers)
        batch.receipts.append(receipt)
        self.buffered_bytes += builder.size_bytes - before
        return full

    def pending(self) -> list[TopicPartition]:
        """The partitions that have records and no batch under way."""
        return [tp for tp, queue in self._queues.items() if queue and tp not in self._sent]

    def is_empty(self) -> bool:
        """Whether every record has been delivered or given up."""
        return not any(self._queues.values())

    def peek(self, tp: TopicPartition) -> Batch:
        """The next batch of a partition, not sealed and not under way."""
        return self._queues[tp][0]

    def take(self, tp: TopicPartition) -> Batch:
        """The next batch of a partition, sealed; it stays first until succeed, retry or fail."""
        batch = self._queues[tp][0]
        self._sent.add(tp)
        batch.attempts += 1
        if not batch.data:
            self._seal(batch)
        return batch

    def _seal(self, batch: Batch) -> None:
        builder = batch.builder
        self.buffered_bytes -= builder.size_bytes
        if self._producer_id >= 0:
            sequence = self._sequences.get(batch.tp, 0)
            builder.producer_id = self._producer_id
            builder.producer_epoch = self._producer_epoch
            builder.base_sequence = sequence
            batch.base_sequence = sequence
            self._sequences[batch.tp] = (sequence + builder.count) & 0x7FFFFFFF
        batch.data = builder.build()

    def succeed(self, batch: Batch, base_offset: int) -> None:
        """The broker has the batch; base_offset -1 where it did not say."""
        self._remove(batch)
        for delta, receipt in enumerate(batch.receipts):
            receipt.succeed(base_offset + delta if base_offset >= 0 else -1)

    def retry(self, batch: Batch, error: Exception) -> None:
        """The batch is to be sent again, as it is, after this error."""
        batch.last_error = error
        self._sent.discard(batch.tp)

    def fail(self, batch: Batch, error: Exception, *, maybe_written: bool) -> None:
        """Give a batch up.

        Refused for certain, its sequence numbers are free again. If it may be in the log, nobody
        knows the next number: `needs_producer_id` is set until `set_producer`.
        """
        self._remove(batch)
        if batch.base_sequence >= 0:
            if maybe_written:
                self.needs_producer_id = True
            elif not self.needs_producer_id:
                self._sequences[batch.tp] = batch.base_sequence
        for receipt in batch.receipts:
            receipt.fail(error)

    def _remove(self, batch: Batch) -> None:
        self._sent.discard(batch.tp)
        queue = self._queues[batch.tp]
        if not queue or queue[0] is not batch:
            raise ValueError(f"the batch under way on {batch.tp} is another one")
        queue.popleft()
