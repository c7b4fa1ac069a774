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
    """The outcome of one record. Awaiting it returns the record's offset, or raises its error."""

    @property
    def topic(self) -> str:
        """The record's topic."""
    @property
    def partition(self) -> int:
        """The record's partition, chosen or given. If the topic is expanded, it may change until
        the record is done (KIP-253).
        """
    @property
    def done(self) -> bool:
        """True if the record was delivered or has failed."""
    @property
    def offset(self) -> int:
        """The record's offset when it is delivered. -1 before that, with acks=0, and for a
        duplicate that the broker detected.
        """
    @property
    def error(self) -> Exception | None:
        """The error if the record failed; otherwise None."""
    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback(delivery)` when the record is delivered or has failed, in the thread of
        the client's loop. If that has already happened, it is called at once, in this thread. The
        callback must not block: it would block the whole client.
        """
    def result(self, timeout: float | None = None) -> int:
        """Wait up to `timeout` seconds (None: without limit) for the record's offset. Raises the
        record's error if it failed, and TimeoutError if it is not done in time.

        The record's batch stops lingering, unless linger.ms was set. Do not call this in the thread
        of the client's loop, where it raises RuntimeError: await the delivery there.
        """
    def wait(self, timeout: float | None = None) -> None:
        """Like `result`, but the record's error is not raised."""
    @staticmethod
    def of(batch: ProducerBatch, index: int) -> Delivery:
        """The delivery of a record of a batch."""
    @property
    def batch_of(self) -> ProducerBatch:
        """The batch that the record is in."""
    def outcome(self) -> int:
        """The result of a delivery that is done."""
    def __await__(self) -> Generator[Any, None, int]: ...
