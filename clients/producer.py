"""Producer and AIOProducer: records into batches, batches to the leaders of their partitions.

`send` encodes a record into its partition's open batch in the caller's thread; the loop (a thread
of the Producer's own, the running loop of an AIOProducer) sends batches that are full or have
lingered. See kstore/_fast/clients/send_path.pyx, core/sender.py and io/sender.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from typing_extensions import Buffer

from kstore._fast.clients.producer_batch import Delivery, ProducerBatch
from kstore._fast.clients.send_path import SendPath
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.io.producing import ProducerShell, check_settings, new_accumulator
from kstore.clients.io.sender import monotonic_ms
from kstore.clients.producer_record import Deliveries, Interceptors, ProducerRecord
from kstore.config.client.configs import ClientSettings, client_settings
from kstore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["AIOProducer", "Deliveries", "Delivery", "Producer", "ProducerRecord"]

_Config = Mapping[str, Any] | str | Sequence[str] | None
_Headers = Iterable[tuple[str, Buffer | None]] | None
_Callback = Callable[[Delivery], object] | None
_Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
_Arguments = tuple[str, Any, Any, int | None, int | None, Any, int | None, _Callback]
_marks = itertools.count(1)
# Records of one send_many between two looks at the loop.
MANY = 100_000


class _Face:
    """What both producers share: settings, interceptors, and the forms that a record comes in."""

    def __init__(self, config: _Config, keywords: Mapping[str, Any], interceptors: Any) -> None:
        self.settings: ClientSettings = client_settings("producer", config, keywords)
        check_settings(self.settings)
        given = [*self.settings["interceptor.classes"], *(interceptors or ())]
        self.interceptors = Interceptors(given)
        self.accumulator = new_accumulator(self.settings)

    def arguments(self, topic: Any, rest: tuple[Any, ...]) -> _Arguments:
        """The arguments of SendPath.append, out of those of send."""
        record = topic
        if not isinstance(record, ProducerRecord):
            if not isinstance(topic, str):
                raise TypeError(f"the topic is {topic!r}: pass its name, or a ProducerRecord")
            if not self.interceptors:
                return (topic, *rest)
            value, key, partition, timestamp, headers, offset, _ = rest
            record = ProducerRecord(
                topic, value, key, partition=partition, headers=headers or (), timestamp=timestamp,
                offset=offset,
            )  # fmt: skip
        on_delivery = rest[-1]
        if self.interceptors:
            record = self.interceptors.on_send(record)
            on_delivery = _both(self.interceptors.on_acknowledgement, on_delivery)
        headers = record.headers if isinstance(record.headers, Sequence) else list(record.headers)
        return (
            record.topic, record.value, record.key, record.partition, record.timestamp,
            headers, record.offset, on_delivery,
        )  # fmt: skip

    def deadline_ms(self) -> int:
        """Until when a call may wait that begins now."""
        return monotonic_ms() + int(self.settings["max.block.ms"])


def _both(first: Callable[[Delivery], object], second: _Callback) -> Callable[[Delivery], object]:
    def call(delivery: Delivery) -> None:
        first(delivery)
        if second is not None:
            second(delivery)

    return first if second is None else call


class Producer(SendPath):
    """Sends records; may be used by many threads. Settings are Kafka's: dotted names in a mapping,
    or snake_case keywords; text or a list in place of the mapping is bootstrap.servers.

    Delivery callbacks and on_acknowledgement of interceptors run in the producer's own thread and
    must not wait there. A producer that is not closed loses what was not flushed.
    """

    def __init__(
        self, config: _Config = None, /, *, interceptors: Sequence[Any] = (), **keywords: Any
    ) -> None:
        self._face = face = _Face(config, keywords, interceptors)
        self._is_closed = False
        self._thread = LoopThread()

        async def begin() -> ProducerShell:
            return ProducerShell(face.settings, face.accumulator)

        self._shell = self._thread.run(begin())
        self.attach(face.accumulator, not face.interceptors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._end(0, abandon=True)

    def _send_slowly(self, topic: Any, *rest: Any) -> Delivery:
        """What `send` could not do at once."""
        arguments = self._face.arguments(topic, rest)
        deadline_ms = self._face.deadline_ms()
        while (delivery := self.append(*arguments)) is None:
            self._overcome(arguments[0], deadline_ms)
        return delivery

    def _overcome(self, topic: str, deadline_ms: int) -> None:
        error = self._shell.gate_error()
        if error is not None:
            raise error
        obstacle = self.accumulator.obstacle
        self._thread.run(self._shell.overcome(obstacle, topic, deadline_ms))

    def send_many(
        self,
        topic: str,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Deliveries:
        """Send many records with one call, in one loop in C; keys are as many as values.

        Interceptors see each of them, as a record of its own.
        """
        values, keys = _lists(values, keys)
        mark, touched, at = next(_marks), list[ProducerBatch](), 0
        if self._face.interceptors:
            return _one_by_one(self.send, topic, values, keys, partition, timestamp)
        where = -1 if partition is None else partition
        deadline_ms = self._face.deadline_ms()
        while at < len(values):
            start = at
            at = self.append_many(topic, values, keys, where, timestamp, start, mark, touched)
            if at > start:
                deadline_ms = self._face.deadline_ms()
            if at < len(values):
                self._overcome(topic, deadline_ms)
        return Deliveries(touched, len(values))

    def send_arrow(self, topic: str, batch: Any, *, partition: int | None = None) -> Deliveries:
        """Send the rows of a pyarrow.RecordBatch or Table: columns value, and if there are such,
        key, timestamp (ms) and headers, as Consumer.poll_arrow has them. No row becomes a Python
        object unless headers are there.
        """
        from kstore.clients.arrow_input import column_runs

        mark, touched, total = next(_marks), list[ProducerBatch](), 0
        where = -1 if partition is None else partition
        for run in column_runs(batch):
            total += run.count
            if run.headers is not None or self._face.interceptors:
                for row in run.rows():
                    delivery = self.send(topic, row[0], row[1], partition, row[2], row[3])
                    touched.append(delivery.batch_of)
                continue
            at, deadline_ms = 0, self._face.deadline_ms()
            while at < run.count:
                start = at
                at = self.append_columns(
                    topic, run.count, run.values, run.keys, run.timestamps, where, start, mark,
                    touched,
                )  # fmt: skip
                if at > start:
                    deadline_ms = self._face.deadline_ms()
                if at < run.count:
                    self._overcome(topic, deadline_ms)
        return Deliveries(dict.fromkeys(touched), total)

    def flush(self, timeout: float | None = None, *, raise_errors: bool = True) -> None:
        """Send all that waits, until every record is delivered or given up; timeout in seconds,
        after it TimeoutError.

        Raises the first error of a record given up since the last flush, unless raise_errors is
        False; each Delivery has its own error in any case.
        """
        self._thread.run(_within(self._shell.flush(), timeout))
        error = self._shell.take_error()
        if error is not None and raise_errors:
            raise error

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; waits for metadata up to max.block.ms."""
        return self._thread.run(self._shell.partitions_for(topic))

    def init_transactions(self) -> None:
        """Once, before the first transaction: ends what an earlier producer of the same
        transactional.id has left open, and fences that producer.
        """
        self._thread.run(self._shell.need_transactions().init())

    def begin_transaction(self) -> None:
        """Open a transaction; all records until its end belong to it."""
        self._thread.run(self._shell.need_transactions().begin())

    def send_offsets_to_transaction(
        self, offsets: _Offsets, group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's offsets as part of the transaction. Errors: as commit_transaction."""
        self._thread.run(self._shell.need_transactions().send_offsets(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Flush and commit. ProducerFencedError and the like (`fatal`): another producer has taken
        over, close this one. After other errors call abort_transaction, after a timeout this again.
        """
        self._thread.run(self._shell.need_transactions().commit())
        self._shell.take_error()

    def abort_transaction(self) -> None:
        """Abort the transaction; records that were not sent fail."""
        self._thread.run(self._shell.need_transactions().abort())

    def close(self, timeout: float | None = None) -> None:
        """Flush (for at most timeout seconds; what is left is given up), and end. Raises as flush
        does; the producer is closed anyway.
        """
        self._end(timeout, abandon=False)
        error = self._shell.take_error()
        if error is not None:
            raise error

    def _end(self, timeout: float | None, *, abandon: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(self._shell.close(timeout, abandon=abandon))
        finally:
            self._thread.close()


class AIOProducer:
    """As Producer, on the running event loop: `delivery = await producer.send(...)` waits only for
    room and metadata; `await delivery` waits for the record. Callbacks run on the loop.
    """

    def __init__(
        self, config: _Config = None, /, *, interceptors: Sequence[Any] = (), **keywords: Any
    ) -> None:
        self._face = _Face(config, keywords, interceptors)
        self._is_closed = False
        self._made: ProducerShell | None = None
        self._path = SendPath()
        self._path.attach(self._face.accumulator, plain=True)

    @property
    def _shell(self) -> ProducerShell:
        if self._made is None:
            self._made = ProducerShell(self._face.settings, self._face.accumulator)
        return self._made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self._end(0, abandon=True)

    async def send(
        self,
        topic: str | ProducerRecord,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: _Headers = None,
        *,
        offset: int | None = None,
        on_delivery: _Callback = None,
    ) -> Delivery:
        """Add a record; timestamp in ms since 1970, None means now. See Producer.send."""
        accumulator = self._face.accumulator
        if type(topic) is str and not self._face.interceptors:
            delivery = self._path.append(
                topic, value, key, partition, timestamp, headers, offset, on_delivery
            )
            if delivery is not None:
                if accumulator.woken:  # a batch is ready: let it go
                    await asyncio.sleep(0)
                return delivery
        rest = (value, key, partition, timestamp, headers, offset, on_delivery)
        arguments = self._face.arguments(topic, rest)
        deadline_ms = self._face.deadline_ms()
        while (delivery := self._path.append(*arguments)) is None:
            await self._shell.overcome(accumulator.obstacle, arguments[0], deadline_ms)
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Deliveries:
        """As Producer.send_many; lets the loop go on now and then."""
        values, keys = _lists(values, keys)
        mark, touched, at = next(_marks), list[ProducerBatch](), 0
        where = -1 if partition is None else partition
        if self._face.interceptors:
            made = [
                await self.send(topic, value, keys[n] if keys else None, partition, timestamp)
                for n, value in enumerate(values)
            ]
            return Deliveries(dict.fromkeys(each.batch_of for each in made), len(values))
        deadline_ms = self._face.deadline_ms()
        while at < len(values):
            start = at
            at = self._path.append_many(topic, values, keys, where, timestamp, start, mark, touched)
            if at > start:
                deadline_ms = self._face.deadline_ms()
            if at < len(values):
                obstacle = self._face.accumulator.obstacle
                await self._shell.overcome(obstacle, topic, deadline_ms)
        await asyncio.sleep(0)
        return Deliveries(touched, len(values))

    async def flush(self, timeout: float | None = None, *, raise_errors: bool = True) -> None:
        """As Producer.flush."""
        await _within(self._shell.flush(), timeout)
        error = self._shell.take_error()
        if error is not None and raise_errors:
            raise error

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; waits for metadata up to max.block.ms."""
        return await self._shell.partitions_for(topic)

    async def init_transactions(self) -> None:
        """As Producer.init_transactions."""
        await self._shell.need_transactions().init()

    async def begin_transaction(self) -> None:
        """As Producer.begin_transaction."""
        await self._shell.need_transactions().begin()

    async def send_offsets_to_transaction(
        self, offsets: _Offsets, group_metadata: ConsumerGroupMetadata
    ) -> None:
        """As Producer.send_offsets_to_transaction."""
        await self._shell.need_transactions().send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """As Producer.commit_transaction."""
        await self._shell.need_transactions().commit()
        self._shell.take_error()

    async def abort_transaction(self) -> None:
        """As Producer.abort_transaction."""
        await self._shell.need_transactions().abort()

    async def close(self, timeout: float | None = None) -> None:
        """As Producer.close."""
        await self._end(timeout, abandon=False)
        error = self._shell.take_error()
        if error is not None:
            raise error

    async def _end(self, timeout: float | None, *, abandon: bool) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._shell.close(timeout, abandon=abandon)


async def _within(waiting: Any, timeout: float | None) -> None:
    async with asyncio.timeout(timeout):
        await waiting


def _lists(values: Sequence[Any], keys: Sequence[Any] | None) -> tuple[list[Any], list[Any] | None]:
    values = values if type(values) is list else list(values)
    if keys is not None:
        keys = keys if type(keys) is list else list(keys)
        if len(keys) != len(values):
            raise ValueError(f"there are {len(values)} values and {len(keys)} keys")
    return values, keys


def _one_by_one(
    send: Callable[..., Delivery],
    topic: str,
    values: Sequence[Any],
    keys: Sequence[Any] | None,
    partition: int | None,
    timestamp: int | None,
) -> Deliveries:
    made = [
        send(topic, value, keys[n] if keys else None, partition, timestamp)
        for n, value in enumerate(values)
    ]
    return Deliveries(dict.fromkeys(delivery.batch_of for delivery in made), len(values))
