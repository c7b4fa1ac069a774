"""AIOConsumer: the Consumer for asyncio, on the loop of its user.

What only changes state (subscribe, assign, seek, pause) is a plain method; what may ask brokers is
awaited. Settings and behaviour are those of Consumer.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kstore._fast.clients.fetched import ConsumerRecord
from kstore._fast.record.batch import InvalidBatchError
from kstore.clients.consumer_calls import (
    ARROW_RECORDS,
    CommitCallback,
    Interceptors,
    WakeupError,
    consumer_settings,
    listener_of,
    subscribe,
    take_arrow,
    take_whole,
)
from kstore.clients.core.consumer.inbox import corrupt
from kstore.clients.core.consumer.subscription import SubscriptionPattern
from kstore.clients.core.metadata import PartitionView
from kstore.clients.io.consumer_shell import ConsumerShell
from kstore.clients.io.handover import RebalanceListener
from kstore.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    from kstore.record import RecordSet

__all__ = ["AIOConsumer"]

T = TypeVar("T")
CLOSE_MS = 30_000


class _Bell:
    """Wakes the task that polls."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.attention = False
        """Something other than records may have come: iteration looks at it before going on."""

    def ring(self) -> None:
        """On the loop."""
        self.attention = True
        self.event.set()


class AIOConsumer:
    """Reads records, for asyncio; see Consumer for the arguments. To be used on one loop, and by
    one task at a time. Listeners run on the loop while poll() is awaited, and may be coroutines.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Sequence[str] | None = None,
        /,
        *topics: str,
        **keywords: Any,
    ) -> None:
        settings, self._names = consumer_settings(config, topics, keywords)
        self._settings = settings
        self._interceptors = Interceptors(settings["interceptor.classes"])
        self._max_records: int = settings["max.poll.records"]
        self._callbacks: deque[Callable[[], object]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_polling = False
        self._is_woken = False
        self._is_unsettled = False
        self._is_closed = False
        self._begun: ConsumerShell | None = None

    async def __aenter__(self) -> Self:
        self._shell  # noqa: B018  what is wrong with the settings is raised here
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _shell(self) -> ConsumerShell:
        """Made on the running loop when it is first needed."""
        if self._begun is None:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            self._bell = _Bell()
            self._loop = asyncio.get_running_loop()
            self._begun = ConsumerShell(self._settings, self._bell.ring)
            if self._names:
                self.subscribe(self._names)
        return self._begun

    async def _attending(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """A result of what may have to call the listener on its way."""
        bell = self._bell
        task = self._loop.create_task(coroutine)
        task.add_done_callback(lambda _: bell.ring())
        problem: Exception | None = None
        try:
            while not task.done():
                problem = await self._call_listener() or problem
                await bell.event.wait()
                bell.event.clear()
        except BaseException:
            task.cancel()
            raise
        if problem is not None:
            raise problem
        return task.result()

    # ---- subscription ----

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | Any = None,
    ) -> None:
        """As Consumer.subscribe. Without a group: a topic that does not come to be is an error of
        the next poll(). ValueError for an empty list: that is `await unsubscribe()`.
        """
        shell = self._shell
        names = topics if isinstance(topics, (str, re.Pattern, SubscriptionPattern)) else [*topics]
        if not names:
            raise ValueError("there are no topics to subscribe to: use unsubscribe()")
        subscribe(shell.subscription, names)
        shell.calls.listener = listener_of(listener)
        self._is_unsettled = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As Consumer.assign."""
        self._shell.subscription.assign([TopicPartition(*tp) for tp in partitions])

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        await self._attending(self._shell.unsubscribe())

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return self._shell.subscription.assigned()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; with a regular expression those that match it now."""
        return self._shell.subscription.topics

    # ---- records ----

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """As Consumer.poll."""
        limit = self._max_records if max_records is None else max_records
        take = self._shell.inbox.take
        records = await self._polling(timeout_ms, lambda: take(limit)) or []
        if self._interceptors and records:
            records = self._interceptors.on_consume(records)
        return records

    async def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None, *, headers: bool = False
    ) -> Any:
        """As Consumer.poll_arrow: a `pyarrow.RecordBatch` or None."""
        limit = ARROW_RECORDS if max_records is None else max_records
        shell = self._shell
        return await self._polling(timeout_ms, lambda: take_arrow(shell, limit, headers=headers))

    async def fetch(self, timeout_ms: float = 500) -> dict[TopicPartition, RecordSet]:
        """As Consumer.fetch."""
        shell = self._shell
        return await self._polling(timeout_ms, lambda: take_whole(shell)) or {}

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records one after the other, for ever or until consumer.timeout.ms without one."""
        timeout_ms = self._settings["consumer.timeout.ms"]
        wait_ms = None if timeout_ms < 0 else timeout_ms
        shell = self._shell
        if self._interceptors:
            while records := await self._polling(wait_ms, lambda: shell.inbox.take(1)):
                for record in self._interceptors.on_consume(records):
                    yield record
            return
        bell = self._bell
        while True:
            bell.attention = False
            fetched = await self._polling(wait_ms, shell.inbox.head)
            if fetched is None:
                return
            try:
                for record in fetched:
                    yield record
                    if bell.attention:
                        break
            except InvalidBatchError as error:
                raise corrupt(fetched, error) from None

    async def _polling(self, timeout_ms: float | None, take: Callable[[], T]) -> T | None:
        """What `take` gives, as soon as that is something; None when time is up."""
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if self._is_polling:
            raise RuntimeError("poll() is awaited already: a consumer is for one task")
        shell = self._shell
        self._is_polling = True
        try:
            shell.begin()
            deadline = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000
            if self._is_unsettled:
                await shell.settle_subscription()
                self._is_unsettled = False
            while True:
                await self._attend()
                if found := take():
                    return found
                if deadline is not None and self._loop.time() >= deadline:
                    await asyncio.sleep(0)  # who polls without a time limit lets others run, too
                    return None
                await self._rung(deadline)
        except Exception:
            shell.raised()
            raise
        finally:
            self._is_polling = False

    async def _rung(self, deadline: float | None) -> None:
        event = self._bell.event
        if deadline is None:
            await event.wait()
        else:
            timer = self._loop.call_at(deadline, event.set)
            try:
                await event.wait()
            finally:
                timer.cancel()
        event.clear()

    async def _attend(self) -> None:
        """In poll: what is to be done besides handing out records."""
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        group = self._shell.group
        if group is not None:
            group.on_poll(int(time.monotonic() * 1000))
        while self._callbacks:
            self._callbacks.popleft()()
        if (problem := await self._call_listener()) is not None:
            raise problem
        if group is not None:
            group.raise_error()

    async def _call_listener(self) -> Exception | None:
        """Let partitions change hands; what the listener raised first, if anything."""
        calls = self._shell.calls
        problem = None
        if calls.wants_poll:
            calls.enter_poll(self._shell.subscription.consumed())
        while calls.pending:
            call = calls.pending.popleft()
            try:
                answer = call.method(call.partitions)
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:  # noqa: BLE001  poll() raises it
                problem = problem or error
            finally:
                call.done()
        return problem

    def wakeup(self) -> None:
        """End a poll() that is awaited, or the next one, with WakeupError. For any thread."""
        self._is_woken = True
        if self._begun is not None:
            self._loop.call_soon_threadsafe(self._bell.ring)

    # ---- positions ----

    def seek(
        self,
        tp: TopicPartition,
        offset: int | OffsetAndMetadata,
        offset_epoch: bytes | None = None,
    ) -> None:
        """As Consumer.seek."""
        self._shell.seek(TopicPartition(*tp), offset, offset_epoch)
        self._bell.attention = True

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As Consumer.seek_to_beginning."""
        self._shell.seek_by_timestamp(partitions, to_end=False)
        self._bell.attention = True

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As Consumer.seek_to_end."""
        self._shell.seek_by_timestamp(partitions, to_end=True)
        self._bell.attention = True

    async def position(self, tp: TopicPartition, timeout_ms: float | None = None) -> int:
        """As Consumer.position."""
        return (await self._shell.position(TopicPartition(*tp), timeout_ms)).offset

    async def position_and_offset_epoch(
        self, tp: TopicPartition, timeout_ms: float | None = None
    ) -> OffsetAndMetadata:
        """As Consumer.position_and_offset_epoch."""
        shell = self._shell
        return shell.offset_and_epoch(await shell.position(TopicPartition(*tp), timeout_ms))

    def pause(self, *partitions: TopicPartition) -> None:
        """As Consumer.pause."""
        self._shell.pause(partitions, paused=True)
        self._bell.attention = True

    def resume(self, *partitions: TopicPartition) -> None:
        """As Consumer.resume."""
        self._shell.pause(partitions, paused=False)
        self._bell.ring()

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return [row.tp for row in self._shell.subscription.partitions.values() if row.paused]

    def current_lag(self, tp: TopicPartition) -> int | None:
        """As Consumer.current_lag."""
        return self._shell.current_lag(TopicPartition(*tp))

    # ---- offsets and topics ----

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offsets."""
        return await self._shell.edge_offsets(partitions, timeout_ms, at_end=False)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """As Consumer.end_offsets."""
        return await self._shell.edge_offsets(partitions, timeout_ms, at_end=True)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As Consumer.offsets_for_times."""
        return await self._shell.offsets_for_times(timestamps, timeout_ms)

    async def partitions_for(
        self, topic: str, timeout_ms: float | None = None
    ) -> tuple[PartitionView, ...]:
        """The partitions of a topic: leaders, replicas, epochs."""
        return await self._shell.partitions_for(topic, timeout_ms)

    async def topics(self, timeout_ms: float | None = None) -> set[str]:
        """The names of all topics but internal ones."""
        return await self._shell.topics(timeout_ms)

    # ---- commits ----

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """As Consumer.commit."""
        self._interceptors.on_commit(await self._shell.commit(offsets, timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """As Consumer.commit_async."""
        self._shell.own_group()
        found = self._shell.offsets_to_commit(offsets)
        task = self._loop.create_task(self._commit_once(found, callback))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_once(
        self, found: Mapping[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None
    ) -> None:
        error: Exception | None = None
        try:
            await self._shell.own_group().commit_once(found)
        except Exception as caught:  # noqa: BLE001  the callback gets it
            error = caught

        def tell() -> None:
            if error is None:
                self._interceptors.on_commit(found)
            if callback is not None:
                callback(found, error)

        self._callbacks.append(tell)
        self._bell.ring()

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None for nothing."""
        return await self._shell.committed(partitions, timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For AIOProducer.send_offsets_to_transaction."""
        return self._shell.group_metadata()

    # ---- the end ----

    async def close(self, timeout_ms: float = CLOSE_MS) -> None:
        """As Consumer.close."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._begun is not None:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=timeout_ms / 1000)
            await self._attending(self._begun.close(timeout_ms))
            while self._callbacks:
                self._callbacks.popleft()()
        self._interceptors.close()
