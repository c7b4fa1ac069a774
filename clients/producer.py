"""Producer and AIOProducer collect records in batches, and send each batch to the leader of its
partition.

`send` encodes a record into the open batch of its partition, in the caller's thread. The loop (in
the Producer's own thread, or the running loop of an AIOProducer) sends batches that are full or
have lingered. See kstore/_fast/clients/send_path.pyx, core/producer/sender.py and io/sender.py.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kstore._fast.clients.producer_batch import Delivery, ProducerBatch
from kstore._fast.clients.send_path import SendPath
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.io.producing import ProducerShell, check_settings, new_accumulator
from kstore.clients.io.sender import monotonic_ms
from kstore.clients.io.unclosed import Unclosed
from kstore.clients.producer_record import Deliveries, Interceptors, ProducerRecord
from kstore.clients.serializers import Serializers
from kstore.config.client.configs import ClientSettings, client_settings
from kstore.items import Headers, Items, check_items, check_number, items_of
from kstore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AIOProducer", "Deliveries", "Delivery", "Producer", "ProducerRecord"]

_Config = Mapping[str, Any] | str | Items[str] | None
_Callback = Callable[[Delivery], object] | None
_Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
_Arguments = tuple[str, Any, Any, int | None, int | None, Any, int | None, _Callback]
_marks = itertools.count(1)
# The number of records of a send_many between two visits to the loop.
MANY = 100_000
RECORDS = "records of producers that were not closed"


class _ProducerCore:
    """What both producers share: settings, interceptors, and the conversion of arguments to
    records.
    """

    def __init__(self, config: _Config, keywords: Mapping[str, Any], interceptors: Any) -> None:
        self.settings: ClientSettings = client_settings("producer", config, keywords)
        check_settings(self.settings)
        given = list(self.settings["interceptor.classes"])
        given += items_of("interceptors", interceptors or (), object, "interceptors")
        self.interceptors = Interceptors(given)
        self.serializers = Serializers(self.settings)
        self.is_plain = not self.interceptors and not self.serializers
        """Whether records are sent without interceptors and serializers."""
        self.accumulator = new_accumulator(self.settings)

    def arguments(self, topic: Any, rest: tuple[Any, ...]) -> _Arguments:
        """The arguments of SendPath.append from the arguments of send."""
        record = topic
        if not isinstance(record, ProducerRecord):
            if not isinstance(topic, str):
                raise TypeError(f"the topic is {topic!r}: pass its name, or a ProducerRecord")
            if self.is_plain:
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
        if self.serializers:
            record = self.serializers.on_send(record)
        headers = record.headers
        if not isinstance(headers, (Sequence, Mapping)):
            headers = list(headers)
        return (
            record.topic, record.value, record.key, record.partition, record.timestamp,
            headers, record.offset, on_delivery,
        )  # fmt: skip

    def deadline_ms(self) -> int:
        """The deadline of a call that starts now."""
        return monotonic_ms() + int(self.settings["max.block.ms"])


def _both(first: Callable[[Delivery], object], second: _Callback) -> Callable[[Delivery], object]:
    def call(delivery: Delivery) -> None:
        first(delivery)
        if second is not None:
            second(delivery)

    return first if second is None else call


class Producer(SendPath):
    """Sends records. Any number of threads may use it.

    Settings are Kafka's producer configs: a mapping with dotted names, or keywords with
    underscores. A str or a list instead of the mapping is bootstrap.servers. Raises ConfigError for
    an invalid setting. Example: ``with Producer("localhost:9092", acks="all") as producer:
    producer.send("orders", b"paid", key=b"1")``.

    Delivery callbacks and interceptors' on_acknowledgement run in the producer's own thread. They
    must not block. If the producer is not closed, it sends its remaining records when it is garbage
    collected or Python exits, within delivery.timeout.ms; a ResourceWarning reports records that
    could not be sent. A `with` block that ends with an error also sends the remaining records, and
    aborts an open transaction.
    """

    def __init__(
        self, config: _Config = None, /, *, interceptors: Items[Any] = (), **keywords: Any
    ) -> None:
        self._core = core = _ProducerCore(config, keywords, interceptors)
        self._is_closed = False
        self._thread = LoopThread()

        async def begin() -> ProducerShell:
            return ProducerShell(core.settings, core.accumulator)

        self._shell = self._thread.run(begin())
        self._unclosed = Unclosed(
            self, self._thread, self._shell.forget, what=RECORDS, patience_s=self._shell.patience_s,
            flush=self._shell.flush_forgotten,
        )  # fmt: skip
        self.attach(core.accumulator, core.is_plain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end(lambda: self._shell.leave(error))

    def _send_slowly(self, topic: Any, *rest: Any) -> Delivery:
        """The part of `send` that cannot be done at once."""
        arguments = self._core.arguments(topic, rest)
        deadline_ms = self._core.deadline_ms()
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
        values: Items[Buffer | None],
        keys: Items[Buffer | None] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Deliveries:
        """Send many values in one call, which is much faster than many calls of `send`. `keys` must
        be as many as `values`. Returns the outcome of all records.

        `timestamp` is in ms since 1970 (None: now). Errors are as for `send`. Interceptors see each
        record.
        """
        values, keys = _lists(values, keys)
        mark, touched, at = next(_marks), list[ProducerBatch](), 0
        if not self._core.is_plain:
            return _one_by_one(self.send, topic, values, keys, partition, timestamp)
        where = -1 if partition is None else partition
        deadline_ms = self._core.deadline_ms()
        while at < len(values):
            start = at
            at = self.append_many(topic, values, keys, where, timestamp, start, mark, touched)
            if at > start:
                deadline_ms = self._core.deadline_ms()
            if at < len(values):
                self._overcome(topic, deadline_ms)
        return Deliveries(touched, len(values))

    def send_arrow(self, topic: str, batch: Any, *, partition: int | None = None) -> Deliveries:
        """Send the rows of a pyarrow.RecordBatch or Table, with the columns of Consumer.poll_arrow:
        value and, if present, key, timestamp (ms since 1970) and headers. Rows without headers do
        not become Python objects. Errors are as for `send`.
        """
        from kstore.clients.arrow_input import column_runs

        mark, touched, total = next(_marks), list[ProducerBatch](), 0
        where = -1 if partition is None else partition
        for run in column_runs(batch):
            total += run.count
            if run.headers is not None or not self._core.is_plain:
                for row in run.rows():
                    delivery = self.send(topic, row[0], row[1], partition, row[2], row[3])
                    touched.append(delivery.batch_of)
                continue
            at, deadline_ms = 0, self._core.deadline_ms()
            while at < run.count:
                start = at
                at = self.append_columns(
                    topic, run.count, run.values, run.keys, run.timestamps, where, start, mark,
                    touched,
                )  # fmt: skip
                if at > start:
                    deadline_ms = self._core.deadline_ms()
                if at < run.count:
                    self._overcome(topic, deadline_ms)
        return Deliveries(dict.fromkeys(touched), total)

    def flush(self, timeout: float | None = None, *, raise_errors: bool = True) -> None:
        """Send all records, and wait until each is delivered or has failed. Raises TimeoutError
        after `timeout` seconds (None: wait until all are done).

        Also raises the first error of a record that failed since the last flush, unless
        raise_errors is False. Each Delivery has its own error.
        """
        _check_timeout(timeout)
        self._thread.run(_within(self._shell.flush(), timeout))
        error = self._shell.take_error()
        if error is not None and raise_errors:
            raise error

    def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic. Waits for metadata for up to max.block.ms."""
        return self._thread.run(self._shell.partitions_for(topic))

    def init_transactions(self) -> None:
        """Call this once, before the first transaction. It aborts a transaction that an earlier
        producer with the same transactional.id left open, and fences that producer.
        """
        self._thread.run(self._shell.need_transactions().init())

    def begin_transaction(self) -> None:
        """Begin a transaction. All records that are sent until it ends belong to it."""
        self._thread.run(self._shell.need_transactions().begin())

    def send_offsets_to_transaction(
        self, offsets: _Offsets, group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction. Errors are as for commit_transaction."""
        self._thread.run(self._shell.need_transactions().send_offsets(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Send all records and commit the transaction. If the error is fatal (its attribute
        `fatal`, for example ProducerFencedError), another producer has taken over: close this one.
        After a timeout, call this again. After any other error, call abort_transaction.
        """
        self._thread.run(self._shell.need_transactions().commit())
        self._shell.take_error()

    def abort_transaction(self) -> None:
        """Abort the transaction. Records that were not sent yet fail."""
        self._thread.run(self._shell.need_transactions().abort())

    def close(self, timeout: float | None = None) -> None:
        """Send the remaining records for at most `timeout` seconds (None: until all are done).
        Records that are left then fail. Raises the errors of `flush`; the producer is closed in any
        case.
        """
        self._end(lambda: self._shell.close(timeout))
        error = self._shell.take_error()
        if error is not None:
            raise error

    def _end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._unclosed.closed()
        try:
            self._thread.run(end())
        finally:
            self._thread.close()


class AIOProducer:
    """The Producer for asyncio, on the running event loop. `delivery = await producer.send(...)`
    waits only for memory and metadata; `await delivery` waits for the record's delivery and returns
    its offset. Callbacks run on the loop. Arguments and errors are those of Producer.
    """

    def __init__(
        self, config: _Config = None, /, *, interceptors: Items[Any] = (), **keywords: Any
    ) -> None:
        self._core = _ProducerCore(config, keywords, interceptors)
        self._is_closed = False
        self._made: ProducerShell | None = None
        self._unclosed: Unclosed | None = None
        self._path = SendPath()
        self._path.attach(self._core.accumulator, plain=True)

    @property
    def _shell(self) -> ProducerShell:
        if self._made is None:
            self._made = shell = ProducerShell(self._core.settings, self._core.accumulator)
            self._unclosed = Unclosed(
                self, asyncio.get_running_loop(), shell.forget, what=RECORDS,
                patience_s=shell.patience_s, lost=shell.report_lost,
            )  # fmt: skip
        return self._made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._end(lambda shell: shell.leave(error))

    async def send(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        *,
        offset: int | None = None,
        on_delivery: _Callback = None,
    ) -> Delivery:
        """Add a record. See Producer.send."""
        accumulator = self._core.accumulator
        if type(topic) is str and self._core.is_plain:
            delivery = self._path.append(
                topic, value, key, partition, timestamp, headers, offset, on_delivery
            )
            if delivery is not None:
                if accumulator.woken:  # a batch is full: let the loop send it
                    await asyncio.sleep(0)
                return delivery
        rest = (value, key, partition, timestamp, headers, offset, on_delivery)
        arguments = self._core.arguments(topic, rest)
        deadline_ms = self._core.deadline_ms()
        while (delivery := self._path.append(*arguments)) is None:
            await self._shell.overcome(accumulator.obstacle, arguments[0], deadline_ms)
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Items[Buffer | None],
        keys: Items[Buffer | None] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Deliveries:
        """Like Producer.send_many. Other tasks run in between."""
        values, keys = _lists(values, keys)
        mark, touched, at = next(_marks), list[ProducerBatch](), 0
        where = -1 if partition is None else partition
        if not self._core.is_plain:
            made = [
                await self.send(topic, value, keys[n] if keys else None, partition, timestamp)
                for n, value in enumerate(values)
            ]
            return Deliveries(dict.fromkeys(each.batch_of for each in made), len(values))
        deadline_ms = self._core.deadline_ms()
        while at < len(values):
            start = at
            at = self._path.append_many(topic, values, keys, where, timestamp, start, mark, touched)
            if at > start:
                deadline_ms = self._core.deadline_ms()
            if at < len(values):
                obstacle = self._core.accumulator.obstacle
                await self._shell.overcome(obstacle, topic, deadline_ms)
        await asyncio.sleep(0)
        return Deliveries(touched, len(values))

    async def flush(self, timeout: float | None = None, *, raise_errors: bool = True) -> None:
        """Like Producer.flush."""
        _check_timeout(timeout)
        await _within(self._shell.flush(), timeout)
        error = self._shell.take_error()
        if error is not None and raise_errors:
            raise error

    async def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic. Waits for metadata for up to max.block.ms."""
        return await self._shell.partitions_for(topic)

    async def init_transactions(self) -> None:
        """Like Producer.init_transactions."""
        await self._shell.need_transactions().init()

    async def begin_transaction(self) -> None:
        """Like Producer.begin_transaction."""
        await self._shell.need_transactions().begin()

    async def send_offsets_to_transaction(
        self, offsets: _Offsets, group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Like Producer.send_offsets_to_transaction."""
        await self._shell.need_transactions().send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Like Producer.commit_transaction."""
        await self._shell.need_transactions().commit()
        self._shell.take_error()

    async def abort_transaction(self) -> None:
        """Like Producer.abort_transaction."""
        await self._shell.need_transactions().abort()

    async def close(self, timeout: float | None = None) -> None:
        """Like Producer.close."""
        await self._end(lambda shell: shell.close(timeout))
        error = self._shell.take_error()
        if error is not None:
            raise error

    async def _end(self, end: Callable[[ProducerShell], Coroutine[Any, Any, None]]) -> None:
        if not self._is_closed:
            self._is_closed = True
            shell = self._shell
            if self._unclosed is not None:
                self._unclosed.closed()
            await end(shell)


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None:
        check_number("timeout", timeout, -math.inf, math.inf)


async def _within(waiting: Any, timeout: float | None) -> None:
    async with asyncio.timeout(timeout):
        await waiting


def _lists(values: Items[Any], keys: Items[Any] | None) -> tuple[list[Any], list[Any] | None]:
    values = _list("values", values)
    if keys is not None:
        keys = _list("keys", keys)
        if len(keys) != len(values):
            raise ValueError(f"there are {len(values)} values and {len(keys)} keys")
    return values, keys


def _list(name: str, given: Items[Any]) -> list[Any]:
    if type(given) is list:
        return given
    check_items(name, given, name)
    return list(given)


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
