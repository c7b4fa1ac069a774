"""The functions of a producer that users call for each record."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from kstore._fast.clients.accumulator import Accumulator
from kstore._fast.clients.producer_batch import Delivery, ProducerBatch
from kstore.items import Headers

_Column = tuple[int, int, int, int, int]

class SendPath:
    """The base class of producers: `send`, in one call from the arguments to the open batch."""

    accumulator: Accumulator
    def attach(self, accumulator: Accumulator, plain: bool) -> None:
        """Call this first. If plain is False, every record takes the subclass's path."""
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
        """Add a record, or a ProducerRecord; timestamp in ms since 1970, None means now.

        Waits up to max.block.ms for the topic's metadata and for room in buffer.memory. Raises
        MessageTooLargeError for a record above max.request.size, and the brokers' error about the
        topic. Later results are in the Delivery, and are passed to on_delivery(delivery) in the
        thread of the producer's loop.
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
        """Only the fast path; None: `accumulator.obstacle` has the reason."""
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
        """Append from values[start] on; returns the index of the first that was not accepted."""
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
        """As append_many, from Arrow's memory."""
