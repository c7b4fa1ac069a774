"""The arguments and results of producers: ProducerRecord, Deliveries, and interceptors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, Protocol

from kstore._fast.clients.producer_batch import Delivery, ProducerBatch
from kstore.config.definition import ConfigError
from kstore.items import Headers

__all__ = [
    "Deliveries", "Delivery", "Interceptors", "ProducerInterceptor", "ProducerRecord",
    "interceptor_of",
]  # fmt: skip

KEY = "interceptor.classes"
_log = logging.getLogger("kstore.clients")


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to send. `value` and `key` are bytes, None, or what the producer's serializers
    accept. `timestamp` is in ms since 1970 (None: now).

    `offset` is the record's offset in the partition (KIP-391, only with kstore's brokers). Such
    records need a `partition`, and must be sent in ascending order.
    """

    topic: str
    value: Any = None
    key: Any = None
    _: KW_ONLY
    partition: int | None = None
    headers: Headers = ()
    timestamp: int | None = None
    offset: int | None = None


class Deliveries:
    """The outcome of the records of one send_many or send_arrow. Awaiting it returns their number,
    or raises the first error.
    """

    __slots__ = ("_batches", "count")

    def __init__(self, batches: Iterable[ProducerBatch], count: int) -> None:
        self._batches = list(batches)
        self.count = count
        """The number of records."""

    def _ends(self) -> Iterable[ProducerBatch]:
        """The batches that contain the records now."""
        rest = list(self._batches)
        while rest:
            batch = rest.pop()
            later = batch.successors()
            rest += later
            if not later:
                yield batch

    @property
    def done(self) -> bool:
        """True if all records are delivered or have failed."""
        return all(batch.done for batch in self._ends())

    @property
    def error(self) -> Exception | None:
        """The first error; None if there is none."""
        return next((batch.error for batch in self._ends() if batch.error is not None), None)

    def result(self, timeout: float | None = None) -> int:
        """Wait until all records are delivered, and return their number. Raises the first error, or
        TimeoutError if a batch takes longer than `timeout` seconds.
        """
        for batch in self._batches:
            Delivery.of(batch, 0).wait(timeout)
        while not self.done:
            for batch in self._ends():
                Delivery.of(batch, 0).wait(timeout)
        return self._outcome()

    def _outcome(self) -> int:
        error = self.error
        if error is not None:
            raise error
        return self.count

    def __await__(self) -> Generator[Any, None, int]:
        return self._all_done().__await__()

    async def _all_done(self) -> int:
        while not self.done:
            waits = [Delivery.of(batch, 0) for batch in self._ends() if not batch.done]
            await asyncio.gather(*waits, return_exceptions=True)
        return self._outcome()


class ProducerInterceptor(Protocol):
    """The methods that an object in `interceptors` can have. Missing methods are not called.
    Exceptions are logged and otherwise ignored, as in Kafka.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send. Called in the thread of `send`, before the partition is
        chosen.
        """

    def on_acknowledgement(self, delivery: Delivery) -> None:
        """Called when a record was delivered or has failed, in the thread of the client's loop."""


class Interceptors:
    """Several interceptors of a producer, called in order."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._objects = [interceptor_of(item, "on_send", "on_acknowledgement") for item in given]

    def __bool__(self) -> bool:
        return bool(self._objects)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record after the last interceptor."""
        for item in self._objects:
            if hasattr(item, "on_send"):
                try:
                    record = item.on_send(record)
                except Exception:  # noqa: BLE001 - it is logged, and sending continues
                    _log.exception("the interceptor %r failed in on_send", item)
        return record

    def on_acknowledgement(self, delivery: Delivery) -> None:
        """Call all of them."""
        for item in self._objects:
            if hasattr(item, "on_acknowledgement"):
                try:
                    item.on_acknowledgement(delivery)
                except Exception:  # noqa: BLE001 - it is logged, and sending continues
                    _log.exception("the interceptor %r failed in on_acknowledgement", item)


def interceptor_of(item: Any, *methods: str) -> Any:
    """An interceptor of an object, a class, or "package.module.Class". ConfigError if it has none
    of these methods.
    """
    found = item
    if isinstance(item, str):
        module, _, name = item.rpartition(".")
        if not module:
            raise ConfigError(f"{KEY}: {item!r} is not package.module.Class", key=KEY)
        found = getattr(import_module(module), name)
    if not any(hasattr(found, method) for method in methods):
        raise ConfigError(
            f"{KEY} has {item!r}: an interceptor needs {' or '.join(methods)}", key=KEY
        )
    return found() if isinstance(found, type) else found
