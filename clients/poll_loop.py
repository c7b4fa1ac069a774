"""Implements poll() for Consumer and AIOConsumer: listener calls, commit callbacks, wakeup, taking
records, interceptors, and waiting for records.

The code is written once, with `await`. AIOConsumer runs it on its user's loop. Consumer runs it in
its user's thread, where an await blocks the thread and never yields. Subclasses define only how to
wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kstore._fast.clients.fetched import ConsumerRecord, FetchedRecords
from kstore._fast.record.batch import InvalidBatchError
from kstore.clients.consumer_calls import (
    ARROW_RECORDS,
    CommitCallback,
    Interceptors,
    Topics,
    WakeupError,
    listener_of,
    no_arrow,
    subscribe,
    take_arrow,
    take_whole,
)
from kstore.clients.core.consumer.inbox import corrupt
from kstore.clients.core.consumer.subscription import SubscriptionKind
from kstore.clients.io.consumer_shell import ConsumerShell
from kstore.clients.io.handover import ListenerCall
from kstore.clients.serializers import Deserializers
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore.record import RecordSet

__all__ = ["PollEvent", "PollLoop"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", threading.Event, asyncio.Event)


class PollEvent(Generic[E]):
    """Wakes the poll. It has no reference to the consumer, so an unused consumer can be garbage
    collected.
    """

    def __init__(self, event: E) -> None:
        self.event: E = event
        self.attention = False
        """Something other than records may have arrived: iteration checks it before it
        continues.
        """
        self.is_woken = False
        """wakeup() was called, and no poll() has raised for it yet."""

    def wake(self) -> None:
        """Where the event may be set: from any thread, or on the loop."""
        self.attention = True
        self.event.set()


class Running(Protocol[T_co]):
    """An operation on the shell's loop: a Task, or a Future of another thread."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> object:
        """Call the function when this is done."""

    def cancel(self) -> object:
        """Cancel it."""

    def done(self) -> bool:
        """Whether it is done."""

    def result(self) -> T_co:
        """Return its result, or raise its exception."""


class PollLoop(ABC, Generic[E]):
    """Polls for the user of one consumer: one thread or one task."""

    BUSY = ""
    """The error if two poll at the same time."""

    def __init__(
        self,
        shell: ConsumerShell,
        poll_event: PollEvent[E],
        settings: Mapping[str, Any],
        interceptors: Interceptors,
    ) -> None:
        self.shell = shell
        self.poll_event: PollEvent[E] = poll_event
        self._interceptors = interceptors
        self._deserializers = Deserializers(settings)
        self._max_records: int = settings["max.poll.records"]
        timeout_ms: int = settings["consumer.timeout.ms"]
        self._iteration_ms = None if timeout_ms < 0 else timeout_ms
        self._callbacks: deque[Callable[[], object]] = deque()
        self._is_polling = False

    # ---- how the user waits ----

    @abstractmethod
    def _time_s(self) -> float:
        """The current time, on the clock of deadlines."""

    @abstractmethod
    async def _begin(self) -> None:
        """A poll begins. The shell starts to fetch with the first one."""

    @abstractmethod
    async def _await_event(self, deadline_s: float | None) -> bool:
        """Wait until the event is set or the deadline passes; False if the deadline had passed
        before.
        """

    @abstractmethod
    async def _call(self, call: ListenerCall) -> None:
        """Call the listener's method."""

    @abstractmethod
    def _raised(self) -> None:
        """Report to the shell that the user gets an error."""

    # ---- records ----

    async def poll(self, timeout_ms: float | None, max_records: int | None) -> list[ConsumerRecord]:
        """As Consumer.poll."""
        limit = self._max_records if max_records is None else max_records
        take = self.shell.inbox.take
        return self._shown(await self._taken(timeout_ms, lambda: take(limit)) or [])

    def _shown(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records as the user gets them."""
        if self._deserializers:
            records = self._deserializers.on_consume(records)
        if self._interceptors and records:
            records = self._interceptors.on_consume(records)
        return records

    async def poll_arrow(
        self, timeout_ms: float | None, max_records: int | None, *, headers: bool
    ) -> pyarrow.RecordBatch:
        """As Consumer.poll_arrow."""
        from kstore.record.arrow import need_pyarrow

        need_pyarrow()  # before anything is taken
        limit = ARROW_RECORDS if max_records is None else max_records
        take = partial(take_arrow, self.shell, limit, headers=headers)
        taken = await self._taken(timeout_ms, take)
        return no_arrow(headers=headers) if taken is None else taken

    async def fetch(self, timeout_ms: float | None) -> dict[TopicPartition, RecordSet]:
        """As Consumer.fetch."""
        return await self._taken(timeout_ms, lambda: take_whole(self.shell)) or {}

    async def next_records(self) -> Iterable[ConsumerRecord] | None:
        """For iteration: records to return one by one before the next call; None if
        consumer.timeout.ms passed without one.
        """
        if self._interceptors or self._deserializers:
            taken = await self._taken(self._iteration_ms, lambda: self.shell.inbox.take(1))
            return None if taken is None else self._shown(taken)
        self.poll_event.attention = False
        fetched = await self._taken(self._iteration_ms, self.shell.inbox.head)
        return None if fetched is None else self._until_attention(fetched)

    def _until_attention(self, fetched: FetchedRecords) -> Iterator[ConsumerRecord]:
        poll_event = self.poll_event
        try:
            for record in fetched:
                yield record
                if poll_event.attention:
                    return
        except InvalidBatchError as error:
            raise corrupt(fetched, error) from None

    async def _taken(self, timeout_ms: float | None, take: Callable[[], T]) -> T | None:
        """The result of `take` as soon as there is one; None at the deadline."""
        if self._is_polling:
            raise RuntimeError(self.BUSY)
        self._is_polling = True
        try:
            deadline_s = None if timeout_ms is None else self._time_s() + timeout_ms / 1000
            await self._begin()
            while True:
                await self._attend()
                if found := take():
                    return found
                if deadline_s is None and self.shell.subscription.kind is SubscriptionKind.NONE:
                    raise RuntimeError(
                        "the consumer has neither topics nor partitions, so poll() would never "
                        "return: call subscribe() or assign() first"
                    )
                if not await self._await_event(deadline_s):
                    return None
        except Exception:
            self._raised()
            raise
        finally:
            self._is_polling = False

    # ---- what else poll() does ----

    async def _attend(self) -> None:
        """Do everything except return records."""
        if self.poll_event.is_woken:
            self.poll_event.is_woken = False
            raise WakeupError("wakeup() was called")
        group, calls = self.shell.group, self.shell.calls
        if group is not None:
            group.on_poll(int(time.monotonic() * 1000))
        self.run_callbacks()
        if calls.wants_poll or calls.pending:
            problem = await self._call_listener()
            if problem is not None:
                raise problem
        if group is not None:
            group.raise_error()

    async def _call_listener(self) -> Exception | None:
        """Assign and revoke partitions; returns the first exception of the listener, if any."""
        calls = self.shell.calls
        problem = None
        if calls.wants_poll:
            calls.enter_poll(self.shell.subscription.consumed())
        while calls.pending:
            call = calls.pending.popleft()
            try:
                await self._call(call)
            except Exception as error:  # noqa: BLE001  poll() raises it
                problem = problem or error
            finally:
                call.done()
        return problem

    async def attending(self, running: Running[T]) -> T:
        """The result of an operation that may call the listener meanwhile: leaving a group, and
        closing.
        """
        wake = self.poll_event.wake
        running.add_done_callback(lambda _: wake())
        problem: Exception | None = None
        try:
            while not running.done():
                problem = await self._call_listener() or problem
                await self._await_event(None)
            found = running.result()
        except BaseException:
            running.cancel()
            raise
        if problem is not None:
            raise problem
        return found

    def subscribe(self, topics: Topics, listener: Any) -> None:
        """Apply a user's call to the subscription, on the shell's loop."""
        subscribe(self.shell.subscription, topics)
        self.shell.calls.listener = listener_of(listener)

    # ---- asynchronous commits ----

    async def commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None
    ) -> None:
        """Commit on the shell's loop. poll() calls the callback and the interceptors."""
        error: Exception | None = None
        try:
            await self.shell.own_group().commit_once(offsets)
        except Exception as caught:  # noqa: BLE001  the callback gets it
            error = caught

        def notify() -> None:
            if error is None:
                self._interceptors.on_commit(offsets)
            if callback is not None:
                callback(offsets, error)

        self._callbacks.append(notify)
        self.poll_event.wake()

    def run_callbacks(self) -> None:
        """Call the callbacks of commits that are done."""
        while self._callbacks:
            self._callbacks.popleft()()
