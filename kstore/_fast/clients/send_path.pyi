"""The methods of a producer that users call for each record."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from kstore._fast.clients.accumulator import Accumulator
from kstore._fast.clients.producer_batch import Delivery, ProducerBatch
from kstore.items import Headers

_Column = tuple[int, int, int, int, int]

class SendPath:
    """The base class of producers. `send` puts its arguments into the open batch in one call."""

    accumulator: Accumulator
    def attach(self, accumulator: Accumulator, plain: bool) -> None:
        """Call this first. If `plain` is False, every record takes the subclass's path."""
    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        *,
        offset: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Add a record, or a ProducerRecord, to the next batch for its partition. Without a
        `partition` the key's hash selects one (murmur2, as in Kafka), and records without a key are
        spread over the partitions. `timestamp` is in ms since 1970 (None: now). `offset` is for
        KIP-391: see ProducerRecord.

        Returns a Delivery: its `result()` waits for the record's offset or raises its error.
        `on_delivery(delivery)` is called when the record is delivered or has failed, in the thread
        of the producer's loop.

        Waits up to max.block.ms for the topic's metadata and for space in buffer.memory. Raises
        MessageTooLargeError for a record larger than max.request.size, and the broker's error for
        the topic.
        """
    def append(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        partition: int | None,
        timestamp: int | None,
        headers: Any,
        offset: int | None,
        on_delivery: Callable[[Delivery], object] | None,
    ) -> Delivery | None:
        """The fast path only. None if it cannot be taken: `accumulator.obstacle` has the reason."""
    def append_many(
        self,
        topic: str,
        values: list[Any],
        keys: list[Any] | None,
        partition: int,
        timestamp: int | None,
        start: int,
        mark: int,
        touched: list[ProducerBatch],
    ) -> int:
        """Append `values` from index `start` on. Returns the index of the first that was not
        accepted.
        """
    def append_columns(
        self,
        topic: str,
        count: int,
        values: _Column,
        keys: _Column | None,
        timestamps: int,
        partition: int,
        start: int,
        mark: int,
        touched: list[ProducerBatch],
    ) -> int:
        """Like append_many, from Arrow's memory."""
