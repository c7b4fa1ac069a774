"""The batch that a producer fills, and the Delivery of each of its records."""

from collections.abc import Callable, Generator
from typing import Any

from kstore._fast.record.builder import RecordBatchBuilder
from kstore.types import TopicPartition

class ProducerBatch(RecordBatchBuilder):
    """A batch on its way. It is a buffer: the bytes of the batch, once it is packed."""

    topic: str
    partition: int
    number: int
    """In the order of the accumulator's batches; that of its origin if its records were moved."""
    created_ms: int
    """On the monotonic clock."""
    first_offset: int
    """Offset that the user gave the first record (KIP-391), or -1."""
    partition_count: int
    """How many partitions the topic had when it was begun (KIP-253)."""
    pinned: bool
    """Its records' partition was given by the user."""
    done: bool
    error: Exception | None
    base_offset: int
    """In the log, once delivered; -1 where it is not known."""
    attempts: int
    retry_at_ms: int
    last_error: Exception | None
    maybe_written: bool
    """An attempt's outcome is not known."""
    renumbered: bool
    """Its sequence has changed since it was last sent."""
    @property
    def tp(self) -> TopicPartition:
        """Where it goes."""
    @property
    def queue_of(self) -> Any:
        """The PartitionQueue that it came from."""
    def pack(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> None:
        """Compress it if that is not done, and write its header. May be done again."""
    def bytes(self) -> bytes:
        """A copy of the packed batch."""
    def complete(self, base_offset: int) -> None:
        """It is in the log; -1: nobody knows where."""
    def fail(self, error: Exception) -> None:
        """It was given up."""
    def move(self, places: list[tuple[ProducerBatch, int]]) -> None:
        """Its records have gone to other batches: where each of them is."""
    def successors(self) -> list[ProducerBatch]:
        """The batches that its records have gone to."""
    def add_waiter(self, waiter: Callable[[], object]) -> None:
        """Call this when it is done, in the thread that ends it; at once if it is."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Delivery:
    """What becomes of one record. Awaitable: the offset, or the error raised."""

    @property
    def topic(self) -> str:
        """Where the record goes."""
    @property
    def partition(self) -> int:
        """Chosen or given; may change until it is done, if the topic grows (KIP-253)."""
    @property
    def done(self) -> bool:
        """Whether the record was delivered or given up."""
    @property
    def offset(self) -> int:
        """Its offset once it is delivered; -1 before, with acks 0, and for a found duplicate."""
    @property
    def error(self) -> Exception | None:
        """Why it was given up."""
    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call callback(delivery) when it is done, in the thread of the client's loop (at once, in
        this one, if it is done). It must not wait: everything else of the client does, meanwhile.
        """
    def result(self, timeout: float | None = None) -> int:
        """Wait (seconds) for the record's offset, or raise why it was given up.

        Unless linger.ms was set, its batch does not linger any longer. TimeoutError: not done yet.
        RuntimeError in the thread of the loop itself, which would wait for ever: await the delivery
        there.
        """
    def wait(self, timeout: float | None = None) -> None:
        """As result, but raises no error of the record."""
    @staticmethod
    def of(batch: ProducerBatch, index: int) -> Delivery:
        """The delivery of a record of a batch."""
    @property
    def batch_of(self) -> ProducerBatch:
        """The batch that the record is in."""
    def outcome(self) -> int:
        """As result of a delivery that is done."""
    def __await__(self) -> Generator[Any, None, int]: ...
