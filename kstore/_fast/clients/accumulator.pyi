"""Where a producer's records wait, each in the open batch of its partition."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kstore._fast.clients.producer_batch import ProducerBatch
from kstore._fast.record.records import Record

class PartitionQueue:
    """The batches of one partition that nobody has taken yet."""

    topic: str
    partition: int
    open: ProducerBatch | None
    closed: deque[ProducerBatch]
    hurried: bool
    sends: Any
    """The sender's notes."""
    def __init__(self, topic: str, partition: int) -> None: ...
    def wait_ms(self, now_ms: int, linger_ms: int) -> int:
        """How long the first batch lingers yet; 0: it may be sent; -1: there is none."""
    def first(self) -> ProducerBatch | None:
        """The batch that leaves next."""

class Accumulator:
    """Open batches, memory, and the choice of partitions. Sizes in bytes."""

    batch_size: int
    memory_bytes: int
    used_bytes: int
    max_request_size: int
    obstacle: int
    """Why the last append gave nothing: 1 topic not known, 2 memory is full, 3 the gate."""
    incomplete: set[ProducerBatch]
    active: set[PartitionQueue]
    gate: object
    """While it is not None, nothing is taken."""
    wake: Callable[[], object] | None
    """Called, in the users' threads, when a batch may be sent; not again before woken is False."""
    woken: bool
    patient: bool
    """Batches linger even if somebody waits for them: linger.ms was asked for."""
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
        """The topic has count partitions; 0: its records have to wait."""
    def set_choices(self, name: str, choices: list[int], weights: list[int] | None) -> None:
        """Where records without a key go, with running sums of the preference for each."""
    def backlog(self, name: str) -> list[int]:
        """Batches that wait to be sent, by partition; empty: no record came without a key."""
    def partition_count(self, name: str) -> int:
        """As set_partitions said; 0: records have to wait."""
    def queues(self, name: str) -> list[PartitionQueue]:
        """The topic's queues, by partition."""
    def topic_names(self) -> list[str]:
        """The topics that set_partitions has named."""
    def close_all(self) -> None:
        """Close all open batches: none of them lingers."""
    def hurry(self, queue: PartitionQueue) -> None:
        """The queue's open batch is not to linger."""
    def take(self, queue: PartitionQueue) -> ProducerBatch | None:
        """The queue's next batch, closed by this if it was open."""
    def give_back(self, batch: ProducerBatch) -> None:
        """Called by a batch that is done: its memory is free."""
    def append_again(self, origin: ProducerBatch, record: Record) -> tuple[ProducerBatch, int]:
        """Append a record of another batch to where it belongs now (KIP-253), whatever the memory;
        the batch where it is, and its place there.
        """
    def split(
        self, batch: ProducerBatch, records: Iterable[Record], limit: int
    ) -> list[ProducerBatch]:
        """The batch's records in several of at most limit bytes each; deliveries follow them."""
