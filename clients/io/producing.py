"""The core of both producers: puts the parts together, and implements what takes time (topics,
memory, flush, close). Producer and AIOProducer use it. Runs on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kstore._fast.clients.accumulator import Accumulator
from kstore._fast.clients.producer_batch import ProducerBatch
from kstore.clients.core.producer.partitioner import partitioner_for
from kstore.clients.core.producer.sender import Sender, SendLimits
from kstore.clients.core.producer.state import ProducerState
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.sender import SendLoop, monotonic_ms
from kstore.config.client.configs import ClientSettings
from kstore.config.definition import ConfigError
from kstore.errors import KafkaError, RequestTimedOutError
from kstore.record import compression_for

if TYPE_CHECKING:
    from kstore.clients.io.transactions import Transactions

__all__ = ["ProducerShell", "check_settings", "new_accumulator"]

_log = logging.getLogger("kstore.clients")
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
FORGOTTEN = "a producer that was not closed"
MAX_IN_FLIGHT = "max.in.flight.requests.per.connection"


def check_settings(settings: ClientSettings) -> None:
    """Check settings that depend on each other. Raises ConfigError for a contradiction; if only one
    of the settings was set, the other is adjusted (as in Kafka, where idempotence is a default).
    """
    given = settings.given
    acks, transactional = ACKS[settings["acks"]], settings["transactional.id"] is not None
    wanted = transactional or ("enable.idempotence" in given and settings["enable.idempotence"])
    if transactional and "enable.idempotence" in given and not settings["enable.idempotence"]:
        raise ConfigError("transactional.id needs enable.idempotence", key="transactional.id")
    if acks != -1 or settings[MAX_IN_FLIGHT] > 5 or settings["retries"] == 0:
        if wanted:
            raise ConfigError(
                f"idempotence and transactions need acks all (it is {settings['acks']}), retries "
                f"(it is {settings['retries']}), and {MAX_IN_FLIGHT} up to 5 (it is "
                f"{settings[MAX_IN_FLIGHT]})",
                key="enable.idempotence",
            )
        settings["enable.idempotence"] = False
    least_ms = min(settings["linger.ms"] + settings["request.timeout.ms"], 0x7FFFFFFF)
    if settings["delivery.timeout.ms"] < least_ms:
        if "delivery.timeout.ms" in given:
            raise ConfigError(
                f"delivery.timeout.ms {settings['delivery.timeout.ms']} is less than linger.ms "
                f"plus request.timeout.ms, {least_ms}",
                key="delivery.timeout.ms",
            )
        settings["delivery.timeout.ms"] = least_ms


def new_accumulator(settings: ClientSettings) -> Accumulator:
    """The accumulator for the settings."""
    codec = compression_for(settings["compression.type"])
    level = -1
    if codec.max_level and f"compression.{codec.name}.level" in settings.given:
        level = settings[f"compression.{codec.name}.level"]
    kind, chooser = partitioner_for(
        settings["partitioner.class"], ignore_keys=settings["partitioner.ignore.keys"]
    )
    accumulator = Accumulator(
        batch_size=min(settings["batch.size"], settings["max.request.size"]),
        memory_bytes=settings["buffer.memory"],
        max_request_size=settings["max.request.size"],
        compression=codec.id,
        level=level,
        partitioner=kind,
        chooser=chooser,
        seed=random.getrandbits(63),
    )
    accumulator.patient = "linger.ms" in settings.given
    return accumulator


class ProducerClosedError(ValueError):
    """A closed producer accepts no records."""


class ProducerShell:
    """Created on its loop, where all its coroutines run."""

    def __init__(self, settings: ClientSettings, accumulator: Accumulator) -> None:
        self.settings = settings
        self.accumulator = accumulator
        self.cluster = ClusterClient(settings)
        acks = ACKS[settings["acks"]]
        self.state = ProducerState(acks == -1 and settings["enable.idempotence"])
        limits = SendLimits(
            settings["linger.ms"],
            settings["delivery.timeout.ms"],
            settings["max.request.size"],
            settings[MAX_IN_FLIGHT],
            settings["retries"],
            settings["retry.backoff.ms"],
            settings["retry.backoff.max.ms"],
        )
        self.sender = Sender(accumulator, limits, self.state, random.random)
        self.sending = SendLoop(self.cluster, settings, accumulator, self.sender, acks)
        self.transactions: Transactions | None = None
        if settings["transactional.id"] is not None:
            from kstore.clients.io.transactions import Transactions

            self.state.transactional = True
            self.transactions = Transactions(self, settings["transactional.id"])
        self._room = asyncio.Event()
        self._waiting = 0
        self._at_exit: list[ProducerBatch] = []
        self._loop = asyncio.get_running_loop()
        accumulator.loop_thread = threading.get_ident()
        accumulator.wake = self._wake

    def _wake(self) -> None:
        """Called in the users' threads."""
        if threading.get_ident() == self.accumulator.loop_thread:
            self.sending.soon()
            return
        try:
            self._loop.call_soon_threadsafe(self.sending.run)
        except RuntimeError:  # the loop was closed while a thread still sends
            self.accumulator.gate = ProducerClosedError("the producer is closed")

    def gate_error(self) -> Exception | None:
        """The error that the caller should raise; None if the obstacle is temporary."""
        gate = self.accumulator.gate
        return type(gate)(*gate.args) if isinstance(gate, Exception) else None

    async def overcome(self, obstacle: int, topic: str, deadline_ms: int) -> None:
        """Wait until the obstacle of a record is gone. Raises its error if it is not gone by
        deadline_ms.
        """
        left_ms = max(deadline_ms - monotonic_ms(), 0)
        if (error := self.gate_error()) is not None:
            raise error
        if obstacle == 2:
            await self._wait_for_room(left_ms)
        else:
            await self.sending.open_topic(topic, left_ms)

    async def _wait_for_room(self, left_ms: int) -> None:
        """Wait until a batch is done and has returned its memory; meanwhile no batch lingers."""
        if not left_ms:
            raise RequestTimedOutError(
                f"buffer.memory ({self.accumulator.memory_bytes} bytes) was full for max.block.ms "
                f"({self.settings['max.block.ms']} ms)"
            )
        self._waiting += 1
        self.accumulator.on_room = self._room.set
        self._room.clear()
        self.accumulator.close_all()
        self.sending.soon()
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._room.wait()
        except TimeoutError:
            pass  # the caller tries once more, and returns without time left
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.accumulator.on_room = None

    def need_transactions(self) -> Transactions:
        """The producer's transactions. Raises RuntimeError without transactional.id."""
        if self.transactions is None:
            raise RuntimeError("the producer has no transactional.id: set it to use transactions")
        return self.transactions

    async def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic."""
        await self.sending.open_topic(topic, self.settings["max.block.ms"])
        return self.accumulator.partition_count(topic)

    async def flush(self) -> None:
        """Send all waiting records now; returns when each is delivered or has failed."""
        self.accumulator.close_all()
        self.sending.soon()
        rest = list(self.accumulator.incomplete)
        while rest:
            for batch in rest:
                await done(batch)
            rest = [later for batch in rest for later in batch.successors()]
            self.accumulator.close_all()
            self.sending.soon()

    def take_error(self) -> Exception | None:
        """The first error of a failed record since the last call."""
        error, self.sender.first_error = self.sender.first_error, None
        return error

    async def close(self, timeout_s: float | None) -> None:
        """Flush for at most so long, fail the remaining records, and close the connections."""
        self.accumulator.gate = ProducerClosedError("the producer is closed")
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
                if self.transactions is not None:
                    await self.transactions.leave()
        except TimeoutError:
            pass
        finally:
            await self.sending.close()
            error = KafkaError("the producer was closed before the record was delivered")
            self.sender.drop_all(error)
            await self.cluster.close()

    async def forget(self) -> None:
        """Close a producer that was not closed by its user: send waiting records. A ResourceWarning
        and the log report those that can't be sent within delivery.timeout.ms.
        """
        await self._close_and_report(FORGOTTEN)

    async def leave(self, error: BaseException) -> None:
        """Leave a with block after an exception: an open transaction is aborted, other records are
        sent. The caller gets the exception, so records that can't be sent are reported as in
        `forget`.
        """
        if self.transactions is not None:
            await self.transactions.leave()
        await self._close_and_report(f"a producer whose with block raised {type(error).__name__}")

    async def _close_and_report(self, who: str) -> None:
        waiting = [*self._at_exit, *self.accumulator.incomplete]
        try:
            await self.close(self.patience_s)
        finally:
            report_lost(waiting, who)

    @property
    def patience_s(self) -> float:
        """The maximum time of a flush: each record has delivery.timeout.ms, and a margin for the
        response.
        """
        return float(self.settings["delivery.timeout.ms"]) / 1000 + 1

    def report_lost(self) -> None:
        """The loop was closed: waiting records are lost."""
        report_lost([*self._at_exit, *self.accumulator.incomplete], FORGOTTEN)

    async def flush_forgotten(self) -> None:
        """Send waiting records because the process exits; `forget` comes later, and reports these
        too.
        """
        self._at_exit += self.accumulator.incomplete
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                await self.flush()


def report_lost(waiting: list[ProducerBatch], who: str) -> None:
    """Report how many records of these batches were not delivered, if any."""
    ends: list[ProducerBatch] = []
    rest = list(dict.fromkeys(waiting))
    while rest:
        batch = rest.pop()
        later = batch.successors()
        rest += later
        ends += [] if later else [batch]
    errors = [batch.error for batch in ends if batch.error is not None or not batch.done]
    lost = sum(batch.count for batch in ends if batch.error is not None or not batch.done)
    if lost:
        text = f"{who} has lost {lost} records ({errors[0] or 'not sent'})"
        if who == FORGOTTEN:
            text += ": close it, or use it in a with block"
        _log.error(text)
        warnings.warn(text, ResourceWarning, stacklevel=2)


async def done(batch: ProducerBatch) -> None:
    """Wait until a batch is done."""
    if not batch.done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batch.add_waiter(_ender(future))
        await future


def _ender(future: asyncio.Future[None]) -> Callable[[], Any]:
    def end() -> None:
        if not future.done():
            future.set_result(None)

    return end
