"""The waiting records of a producer, each in the open batch of its partition."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kstore._fast.clients.producer_batch import ProducerBatch
from kstore._fast.record.records import Record

class PartitionQueue:
    """The batches of one partition that were not taken yet."""

    topic: str
    partition: int
    open: ProducerBatch | None
    closed: deque[ProducerBatch]
    hurried: bool
    sends: Any
    """The sender's notes."""
    def __init__(self, topic: str, partition: int) -> None: ...
    def wait_ms(self, now_ms: int, linger_ms: int) -> int:
        """How much longer the first batch lingers; 0: it may be sent; -1: there is none."""
    def first(self) -> ProducerBatch | None:
        """The batch that is sent next."""

class Accumulator:
    """Open batches, memory, and the choice of partitions. Sizes in bytes."""

    batch_size: int
    memory_bytes: int
    used_bytes: int
    max_request_size: int
    obstacle: int
    """Why the last append failed: 1 topic unknown, 2 memory full, 3 the gate."""
    incomplete: set[ProducerBatch]
    active: set[PartitionQueue]
    gate: object
    """While it is not None, no record is accepted."""
    wake: Callable[[], object] | None
    """Called, in the users' threads, when a batch may be sent; not again before woken is False."""
    woken: bool
    patient: bool
    """Batches linger even if a caller waits for them: linger.ms was set."""
    timed: bool
    quiet: bool
    loop_thread: int | None
    on_room: Callable[[], object] | None
    def __init__(
        self,
        *,
        batch_size: int,
        memory_bytes: int,
        max_request_size: int,
        compression: int = 0,
        level: int = -1,
        partitioner: int = 0,
        chooser: Callable[[str, Any, Any, int], int] | None = None,
        seed: int = 1,
    ) -> None: ...
    def set_partitions(self, name: str, count: int) -> list[PartitionQueue]:
        """The topic has count partitions; 0: its records must wait."""
    def set_choices(self, name: str, choices: list[int], weights: list[int] | None) -> None:
        """The choices for records without a key, with running sums of their weights."""
    def backlog(self, name: str) -> list[int]:
        """The number of batches that wait to be sent, by partition; empty: no record without a key
        was appended.
        """
    def partition_count(self, name: str) -> int:
        """The count of set_partitions; 0: records must wait."""
    def queues(self, name: str) -> list[PartitionQueue]:
        """The topic's queues, by partition."""
    def topic_names(self) -> list[str]:
        """The topics that set_partitions has named."""
    def close_all(self) -> None:
        """Close all open batches: none of them lingers."""
    def hurry(self, queue: PartitionQueue) -> None:
        """The queue's open batch must not linger."""
    def take(self, queue: PartitionQueue) -> ProducerBatch | None:
        """Take the queue's next batch; closes it if it is open."""
    def give_back(self, batch: ProducerBatch) -> None:
        """Called by a batch that is done: its memory is free."""
    def append_again(self, origin: ProducerBatch, record: Record) -> tuple[ProducerBatch, int]:
        """Append a record of another batch to its new partition (KIP-253), even if the memory is
        full; returns the batch and the record's place in it.
        """
    def split(
        self, batch: ProducerBatch, records: Iterable[Record], limit: int
    ) -> list[ProducerBatch]:
        """Split the batch's records into batches of at most limit bytes; deliveries follow them."""
