"""The batch that a producer fills, and the Delivery of each of its records."""

from collections.abc import Callable, Generator
from typing import Any

from kstore._fast.record.builder import RecordBatchBuilder
from kstore.types import TopicPartition

class ProducerBatch(RecordBatchBuilder):
    """A batch that is filled and sent. It is a buffer: the bytes of the batch, once it is
    packed.
    """

    topic: str
    partition: int
    number: int
    """In the order of the accumulator's batches; that of its origin if its records were moved."""
    created_ms: int
    """A time of the monotonic clock."""
    first_offset: int
    """The offset that the user set for the first record (KIP-391), or -1."""
    partition_count: int
    """The number of partitions of the topic when the batch was started (KIP-253)."""
    pinned: bool
    """The user chose its records' partition."""
    done: bool
    error: Exception | None
    base_offset: int
    """The offset in the log, once delivered; -1 if unknown."""
    attempts: int
    retry_at_ms: int
    last_error: Exception | None
    maybe_written: bool
    """The result of an attempt is unknown."""
    renumbered: bool
    """Its sequence has changed since it was last sent."""
    @property
    def tp(self) -> TopicPartition:
        """The batch's partition."""
    @property
    def queue_of(self) -> Any:
        """The PartitionQueue that it belongs to."""
    def pack(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> None:
        """Compress it if that is not done, and write its header. May be repeated."""
    def bytes(self) -> bytes:
        """A copy of the packed batch."""
    def complete(self, base_offset: int) -> None:
        """It is in the log; -1: at an unknown offset."""
    def fail(self, error: Exception) -> None:
        """It failed."""
    def move(self, places: list[tuple[ProducerBatch, int]]) -> None:
        """Its records were moved to other batches: the new place of each."""
    def successors(self) -> list[ProducerBatch]:
        """The batches that its records were moved to."""
    def add_waiter(self, waiter: Callable[[], object]) -> None:
        """Call this when it is done, in the thread that completes it; at once if it is done."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Delivery:
    """The outcome of one record. Awaitable: returns the offset, or raises the error."""

    @property
    def topic(self) -> str:
        """The record's topic."""
    @property
    def partition(self) -> int:
        """The partition, chosen or given; may change until it is done, if the topic is expanded
        (KIP-253).
        """
    @property
    def done(self) -> bool:
        """Whether the record was delivered or has failed."""
    @property
    def offset(self) -> int:
        """Its offset once it is delivered; -1 before, with acks 0, and for a detected duplicate."""
    @property
    def error(self) -> Exception | None:
        """The error, if it failed."""
    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call callback(delivery) when it is done, in the thread of the client's loop (at once, in
        this thread, if it is done). The callback must not block, because it would block the whole
        client.
        """
    def result(self, timeout: float | None = None) -> int:
        """Wait (seconds) for the record's offset. Raises its error if it failed.

        Unless linger.ms was set, its batch stops lingering. Raises TimeoutError if it is not done
        yet. Raises RuntimeError in the thread of the loop, which would wait for itself: await the
        delivery there.
        """
    def wait(self, timeout: float | None = None) -> None:
        """As result, but does not raise the record's error."""
    @staticmethod
    def of(batch: ProducerBatch, index: int) -> Delivery:
        """The delivery of a record of a batch."""
    @property
    def batch_of(self) -> ProducerBatch:
        """The batch that the record is in."""
    def outcome(self) -> int:
        """As result of a delivery that is done."""
    def __await__(self) -> Generator[Any, None, int]: ...
