"""Producer with confluent-kafka's API: produce() does not wait, and callbacks report the delivery
of messages. poll() and flush() call them in the caller's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from kstore.clients.compat.confluent.client import Client, made
from kstore.clients.compat.confluent.error import KafkaError, KafkaException, error_of
from kstore.clients.compat.confluent.model import (
    TIMESTAMP_CREATE_TIME,
    Message,
    TopicPartition,
)
from kstore.clients.compat.confluent.settings import settings_of
from kstore.clients.producer import Delivery
from kstore.clients.producer import Producer as KstoreProducer
from kstore.errors import KafkaError as ProtocolKafkaError
from kstore.types import ConsumerGroupMetadata

if TYPE_CHECKING:
    from kstore.clients.io.transactions import Transactions

__all__ = ["Producer"]

Callback = Callable[[KafkaError | None, Message], object] | None
FULL, GATE = 2, 3
"""The values of Accumulator.obstacle: no memory, no open transaction."""
NO_PARTITION = (KafkaError._INVALID_ARG, KafkaError.UNKNOWN_TOPIC_OR_PART)
PARTITION_BYTES, TIMESTAMP_BYTES = 4, 8
SLICE_S = 0.05


class _Sent:
    """A message that was produced: the data of its delivery report."""

    __slots__ = (
        "callback", "deadline_ms", "headers", "key", "partition", "since", "timestamp", "topic",
        "value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: Callback,
        timestamp: int,
        headers: list[tuple[str, bytes | None]] | None,
    ) -> None:
        self.topic, self.value, self.key, self.partition = topic, value, key, partition
        self.callback, self.headers = callback, headers
        self.timestamp = timestamp or int(time.time() * 1000)
        self.since = time.monotonic()
        self.deadline_ms = 0

    def message(self, error: KafkaError | None, partition: int, offset: int) -> Message:
        """Queue the report."""
        return Message(
            self.topic, partition, None if offset < 0 else offset, self.key, self.value,
            self.headers, error, (TIMESTAMP_CREATE_TIME, self.timestamp),
            time.monotonic() - self.since,
        )  # fmt: skip


class Producer(Client):
    """Takes librdkafka's settings in a dict, or as keywords. Many threads may use it."""

    _CLOSED = "Producer has been closed"
    _CREATES_TOPICS = True

    def __init__(self, *config: Any, **keywords: Any) -> None:
        settings = settings_of("producer", config, keywords)
        own = settings.own
        self._on_delivery: Callback = own["on_delivery"] or own["dr_cb"]
        self._limit: int = own["queue.buffering.max.messages"]
        self._producer = made(KstoreProducer, settings)
        self._is_transactional = settings.get("transactional.id") is not None
        self._lock = threading.Condition()
        self._unserved = 0
        self._waiting: deque[_Sent] = deque()
        self._waiter: threading.Thread | None = None
        self._overcoming: asyncio.Task[None] | None = None
        cluster = self._producer._shell.cluster
        self._attach("producer", own, self._producer._thread, cluster, self.__len__)

    def _leave(self) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of messages that wait, and of reports that were not served."""
        return self._unserved + len(self._events)

    def __bool__(self) -> bool:
        return True

    # ---- messages ----

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callback = None,
        on_delivery: Callback = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Add a message; on_delivery(error, message) is called from poll() or flush().

        Raises BufferError if too many messages wait, KafkaException if the message can't be sent.
        """
        self._check()
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        if len(self) >= self._limit:
            raise BufferError("Local: Queue full")
        on_delivery = callback or on_delivery or self._on_delivery
        sent = _Sent(
            topic, _bytes(value), _bytes(key), partition, on_delivery, timestamp, _headers(headers)
        )
        with self._lock:
            must_wait = bool(self._waiting)
            if must_wait:
                self._wait_for(sent)
            self._unserved += 1
        if must_wait:
            return
        try:
            self._send(sent)
        except BaseException:
            with self._lock:
                self._unserved -= 1
            raise

    def _append(self, sent: _Sent) -> Delivery | None:
        partition = None if sent.partition < 0 else sent.partition
        return self._producer.append(
            sent.topic, sent.value, sent.key, partition, sent.timestamp, sent.headers, None,
            self._reporter(sent),
        )  # fmt: skip

    def _send(self, sent: _Sent) -> None:
        producer = self._producer
        try:
            delivery = self._append(sent)
        except (ProtocolKafkaError, ValueError) as error:
            raise self._refused(sent, error) from None
        if delivery is not None:
            return
        obstacle = producer.accumulator.obstacle
        if obstacle == FULL:
            raise BufferError("Local: Queue full")
        if obstacle == GATE:
            closed = producer._shell.gate_error() or RuntimeError("no transaction is open")
            raise KafkaException(KafkaError(KafkaError._STATE, error_of(closed).str()))
        with self._lock:
            self._wait_for(sent)

    def _refused(self, sent: _Sent, error: Exception) -> KafkaException:
        found = error_of(error)
        if sent.partition >= 0 and found in NO_PARTITION:
            found = KafkaError(KafkaError._UNKNOWN_PARTITION, found.str())
        return KafkaException(KafkaError(found.code(), f"Unable to produce message: {found.str()}"))

    def _wait_for(self, sent: _Sent) -> None:
        """Call with the lock: the topic is not known yet. A thread waits for it instead of the
        caller.
        """
        sent.partition = _whole(sent.partition, PARTITION_BYTES)
        sent.timestamp = _whole(sent.timestamp, TIMESTAMP_BYTES)
        sent.deadline_ms = self._producer._core.deadline_ms()
        self._waiting.append(sent)
        if self._waiter is None:
            self._waiter = threading.Thread(
                target=self._send_waiting, name="kstore-compat-produce", daemon=True
            )
            self._waiter.start()

    def _send_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._waiter = None
                    return
                sent = self._waiting[0]
            try:
                while not self._is_taken(sent):
                    self._thread.run(self._overcome(sent))
            except CancelledError:
                continue  # `purge` has removed it
            except Exception as error:  # noqa: BLE001 - without this thread, close() hangs
                self._could_not_send(sent, error)

    def _is_next(self, sent: _Sent) -> bool:
        """Whether it still waits: it does not after `purge`."""
        return bool(self._waiting) and self._waiting[0] is sent

    def _is_taken(self, sent: _Sent) -> bool:
        """Whether it waits no more. With the lock, so that no message gets into a later transaction
        than its own.
        """
        with self._lock:
            if self._is_next(sent):
                if self._append(sent) is None:
                    return False
                self._waiting.popleft()
                self._lock.notify_all()
            return True

    async def _overcome(self, sent: _Sent) -> None:
        shell = self._producer._shell
        self._overcoming = asyncio.current_task()
        try:
            if self._is_next(sent):
                obstacle = self._producer.accumulator.obstacle
                await shell.overcome(obstacle, sent.topic, sent.deadline_ms)
        finally:
            self._overcoming = None

    def _could_not_send(self, sent: _Sent, error: Exception) -> None:
        found = _undelivered(error)
        known = self._producer.accumulator.partition_count(sent.topic)
        if sent.partition >= 0 and found in NO_PARTITION and known > 0:
            found = KafkaError(KafkaError._UNKNOWN_PARTITION, found.str())
        elif found == KafkaError.UNKNOWN_TOPIC_OR_PART:
            found = KafkaError(KafkaError._UNKNOWN_TOPIC, found.str())
        with self._lock:
            if not self._is_next(sent):
                return
            if self._is_transactional:  # its transaction must not be committed without it
                shell = self._producer._shell
                with contextlib.suppress(RuntimeError):  # the producer is closed
                    self._thread.call(shell.need_transactions().record_failed, error)
            self._report(sent, found, sent.partition, -1)
            self._waiting.popleft()
            self._lock.notify_all()

    def _reporter(self, sent: _Sent) -> Callable[[Delivery], None]:
        return lambda delivery: self._delivered(sent, delivery)

    def _delivered(self, sent: _Sent, delivery: Delivery) -> None:
        """Runs on the client's loop."""
        error = delivery.error
        found = None if error is None else _undelivered(error)
        self._report(sent, found, delivery.partition, delivery.offset)

    def _report(self, sent: _Sent, error: KafkaError | None, partition: int, offset: int) -> None:
        callback = sent.callback
        if callback is not None:
            message = sent.message(error, partition, offset)
            self._events.put(lambda: callback(error, message))
        with self._lock:
            self._unserved -= 1
            self._lock.notify_all()

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callback = None,
        on_delivery: Callback = None,
    ) -> int:
        """Call produce() for each message; returns the number of accepted ones. Each other message
        has its error in `_error`.
        """
        taken = 0
        for row in messages:
            own = row.get("callback") or row.get("on_delivery")
            try:
                self.produce(
                    topic, row.get("value"), row.get("key"), row.get("partition", partition),
                    own or callback or on_delivery, timestamp=row.get("timestamp", 0),
                    headers=row.get("headers"),
                )  # fmt: skip
                taken += 1
            except BufferError as error:
                row["_error"] = KafkaError(KafkaError._QUEUE_FULL, str(error))
            except KafkaException as error:
                row["_error"] = error.args[0]
        return taken

    def poll(self, timeout: float = -1) -> int:
        """Call the pending callbacks, after waiting up to timeout seconds for one. Returns their
        number.
        """
        self._check()
        return self._events.serve(timeout)

    def flush(self, timeout: float = -1) -> int:
        """Send all waiting messages and call the callbacks; returns the number of messages that are
        left after timeout seconds.
        """
        self._check()
        return self._flush(timeout)

    def _flush(self, timeout: float) -> int:
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while True:
            self._events.serve(0)
            left = len(self)
            is_late = deadline is not None and time.monotonic() >= deadline
            if not left or is_late:
                return left
            slice_s = SLICE_S
            if deadline is not None:
                slice_s = max(min(slice_s, deadline - time.monotonic()), 0.001)
            try:
                self._producer.flush(slice_s, raise_errors=False)
            except TimeoutError:
                continue  # callbacks run first, then it continues
            with self._lock:
                if self._unserved and not len(self._events):
                    self._lock.wait(slice_s)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Discard the messages whose topic is not known yet; messages in batches are sent."""
        self._check()
        if in_queue:
            self._purge_waiting()

    def _purge_waiting(self) -> None:
        with self._lock:
            given_up = list(self._waiting)
            self._waiting.clear()
        self._thread.call(self._stop_overcoming)
        for sent in given_up:
            self._report(sent, KafkaError(KafkaError._PURGE_QUEUE), sent.partition, -1)

    def _stop_overcoming(self) -> None:
        if self._overcoming is not None:
            self._overcoming.cancel()

    # ---- transactions ----

    def init_transactions(self, timeout: float = -1) -> None:
        """As Kafka's: call it once, before the first transaction."""
        self._transact(lambda transactions: transactions.init(), timeout)

    def begin_transaction(self) -> None:
        """Open a transaction."""
        self._transact(lambda transactions: transactions.begin())

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send waiting messages, then commit. After a timeout call it again."""
        self._transact(lambda transactions: transactions.commit(), timeout, is_commit=True)
        self._producer._shell.take_error()

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort; messages that were not sent fail. After a timeout call it again."""
        if self._is_transactional:
            self._check()
            self._purge_waiting()
        self._transact(lambda transactions: transactions.abort(), timeout)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit a consumer's offsets with the transaction. group_metadata is the result of
        Consumer.consumer_group_metadata.
        """
        offsets = {row.pair: row.committable for row in positions if row.offset >= 0}
        if not isinstance(group_metadata, ConsumerGroupMetadata):
            raise TypeError("group_metadata is not the result of consumer_group_metadata()")
        self._transact(lambda each: each.send_offsets(offsets, group_metadata), timeout)

    def _transact(
        self,
        call: Callable[[Transactions], Coroutine[Any, Any, None]],
        timeout: float | None = -1,
        *,
        is_commit: bool = False,
    ) -> None:
        """Run the operation within timeout seconds; below 0, and None, mean the time of the
        settings.
        """
        self._check()
        if not self._is_transactional:
            text = "The Transactional API requires transactional.id to be configured"
            raise KafkaException(KafkaError(KafkaError._NOT_CONFIGURED, text))
        limit = None if timeout is None or timeout < 0 else timeout
        until = None if limit is None else time.monotonic() + limit
        if is_commit:
            with self._lock:  # messages of topics that are not known yet belong to the transaction
                if not self._lock.wait_for(lambda: not self._waiting, timeout=limit):
                    raise _too_late(limit)

        async def run() -> None:
            async with asyncio.timeout(None if until is None else until - time.monotonic()):
                await call(self._producer._shell.need_transactions())

        try:
            self._producer._thread.run(run())
        except TimeoutError:
            raise _too_late(limit) from None
        except (ProtocolKafkaError, ValueError, RuntimeError) as error:
            found = error_of(error)
            is_protocols = isinstance(error, ProtocolKafkaError)
            aborts = is_protocols and not found.fatal() and not found.retriable()
            raise KafkaException(
                KafkaError(found.code(), found.str(), found.fatal(), found.retriable(), aborts)
            ) from None

    # ---- the cluster, close ----

    def close(self, timeout: float = -1) -> bool:
        """Flush and close; returns whether nothing was left."""
        if self._is_closed:
            return True
        left = self._flush(timeout)
        self._is_closed = True
        self._events.close()
        with contextlib.suppress(ProtocolKafkaError, TimeoutError):  # the reports have the errors
            self._producer.close(0 if left else None)
        return not left


def _too_late(limit: float | None) -> KafkaException:
    text = f"the call did not complete within {limit} s; it may be called again"
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, text, False, True, False))


def _undelivered(error: Exception) -> KafkaError:
    """Why a message failed: a timeout, if brokers could not be reached."""
    found = error_of(error, timed_out=KafkaError._MSG_TIMED_OUT)
    if found == KafkaError._TRANSPORT:
        return KafkaError(KafkaError._MSG_TIMED_OUT, found.str())
    return found


def _whole(given: Any, size: int) -> int:
    """The number, if it fits into size bytes; with the errors that a message of a known topic
    raises.
    """
    if isinstance(given, (str, bytes)):
        raise TypeError("an integer is required")
    number = int(given)
    number.to_bytes(size, signed=True)
    return number


def _bytes(given: Any) -> Any:
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes):
        return given
    try:
        return bytes(memoryview(given))
    except TypeError:
        kind = type(given).__name__
        raise TypeError(f"a bytes-like object is required, not '{kind}'") from None


def _headers(given: Any) -> list[tuple[str, bytes | None]] | None:
    if given is None:
        return None
    if not isinstance(given, (dict, list)):
        kind = type(given).__name__
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {kind}")
    pairs: Iterable[Any] = given.items() if isinstance(given, dict) else given
    found = []
    for name, value in pairs:
        if value is not None and not isinstance(value, (str, bytes, bytearray)):
            kind = type(value).__name__
            raise TypeError(
                f"expected header value to be None, binary, or unicode string, not {kind}"
            )
        packed = value.encode() if isinstance(value, str) else value
        found.append((name, None if packed is None else bytes(packed)))
    return found
