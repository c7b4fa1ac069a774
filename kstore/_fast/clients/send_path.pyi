"""What a producer's users call for each record."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from kstore._fast.clients.accumulator import Accumulator
from kstore._fast.clients.producer_batch import Delivery, ProducerBatch
from kstore.items import Headers

_Column = tuple[int, int, int, int, int]

class SendPath:
    """The base of producers: `send`, in one call from the arguments to the open batch."""

    accumulator: Accumulator
    def attach(self, accumulator: Accumulator, plain: bool) -> None:
        """Before anything else; plain False: every record takes the subclass's way."""
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
        MessageTooLargeError for a record above max.request.size, and what the brokers say of the
        topic. What happens later is told by the Delivery, and to on_delivery(delivery) in the
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
        """The short way alone; None: `accumulator.obstacle` says why not."""
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
        """Append from values[start] on; the index of the first that was not taken."""
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
