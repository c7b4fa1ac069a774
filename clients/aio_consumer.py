"""AIOConsumer: the Consumer for asyncio, on the user's loop.

Methods that only change state (subscribe, assign, seek, pause) are plain functions; methods that
may send requests are coroutines. Settings and behaviour are those of Consumer; poll_loop.py
implements poll().
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kstore._fast.clients.fetched import ConsumerRecord
from kstore.clients.consumer_calls import (
    CommitCallback,
    Interceptors,
    Topics,
    consumer_settings,
    log_truncation,
    topics_of,
)
from kstore.clients.core.consumer.inbox import OnTruncation
from kstore.clients.core.metadata import PartitionView
from kstore.clients.io.consumer_shell import FORGOTTEN_MS, ConsumerShell
from kstore.clients.io.handover import ListenerCall, RebalanceListener
from kstore.clients.io.unclosed import Unclosed
from kstore.clients.poll_loop import PollEvent, PollLoop
from kstore.items import Items, partitions_of
from kstore.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow

    from kstore.record import RecordSet

__all__ = ["AIOConsumer"]

T = TypeVar("T")
CLOSE_MS = 30_000


class _TaskPollLoop(PollLoop[asyncio.Event]):
    """Polls in the user's task, on the loop that the shell also runs on."""

    BUSY = "poll() is already running: only one task may use a consumer"

    def __init__(
        self,
        shell: ConsumerShell,
        poll_event: PollEvent[asyncio.Event],
        settings: Mapping[str, Any],
        interceptors: Interceptors,
    ) -> None:
        super().__init__(shell, poll_event, settings, interceptors)
        self.loop = asyncio.get_running_loop()
        self._is_unsettled = False

    def subscribe(self, topics: Topics, listener: Any) -> None:
        """Subscribe. The next poll waits until the topics are known."""
        super().subscribe(topics, listener)
        self._is_unsettled = True

    def _time_s(self) -> float:
        return self.loop.time()

    async def _begin(self) -> None:
        self.shell.begin()
        if self._is_unsettled:
            await self.shell.settle_subscription()
            self._is_unsettled = False

    async def _await_event(self, deadline_s: float | None) -> bool:
        event = self.poll_event.event
        if deadline_s is None:
            await event.wait()
        elif self.loop.time() >= deadline_s:
            await asyncio.sleep(0)  # let other tasks run if poll() has no time limit
            return False
        else:
            timer = self.loop.call_at(deadline_s, event.set)
            try:
                await event.wait()
            finally:
                timer.cancel()
        event.clear()
        return True

    async def _call(self, call: ListenerCall) -> None:
        answer = call.method(call.partitions)
        if inspect.isawaitable(answer):
            await answer

    def _raised(self) -> None:
        self.shell.raised()


class AIOConsumer:
    """The Consumer for asyncio. Arguments, results and errors are those of Consumer. Use it on one
    loop, in one task at a time. Listeners run on the loop during poll() and may be coroutine
    functions; `on_truncation` is a plain function.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Items[str] | None = None,
        /,
        *topics: str,
        on_truncation: OnTruncation | None = None,
        **keywords: Any,
    ) -> None:
        settings, self._names = consumer_settings(config, topics, keywords)
        self._settings = settings
        self._on_truncation = on_truncation or log_truncation
        self._interceptors = Interceptors(settings["interceptor.classes"])
        self._poll_event = PollEvent(asyncio.Event())
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._begun: _TaskPollLoop | None = None
        self._unclosed: Unclosed | None = None

    async def __aenter__(self) -> Self:
        self._polls  # noqa: B018  raises the errors of the settings
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _polls(self) -> _TaskPollLoop:
        """Created on the running loop when it is first needed."""
        if self._begun is None:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            shell = ConsumerShell(self._settings, self._poll_event.wake, self._on_truncation)
            self._begun = _TaskPollLoop(shell, self._poll_event, self._settings, self._interceptors)
            self._unclosed = Unclosed(
                self, self._begun.loop, shell.forget, what="consumers to leave their groups",
                patience_s=FORGOTTEN_MS / 1000,
            )  # fmt: skip
            if self._names:
                self.subscribe(self._names)
        return self._begun

    @property
    def _open(self) -> _TaskPollLoop:
        """The shell, for polling. Raises RuntimeError if the consumer is closed."""
        if self._is_closed:
            raise RuntimeError("the client is closed")
        return self._polls

    @property
    def _shell(self) -> ConsumerShell:
        return self._polls.shell

    async def _attending(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of an operation that may have to call the listener meanwhile."""
        polls = self._polls
        return await polls.attending(polls.loop.create_task(coroutine))

    # ---- subscription ----

    def subscribe(self, topics: Topics, listener: RebalanceListener | Any = None) -> None:
        """Like Consumer.subscribe. Without a group, the next poll() raises the error for a topic
        that does not exist. Raises ValueError for an empty list: use `await unsubscribe()`.
        """
        polls = self._polls
        wanted = topics_of(topics)
        if not wanted:
            raise ValueError("there are no topics to subscribe to: use unsubscribe()")
        polls.subscribe(wanted, listener)

    def assign(self, partitions: Items[TopicPartition]) -> None:
        """Like Consumer.assign."""
        self._shell.subscription.assign(partitions_of("partitions", partitions))

    async def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        await self._attending(self._shell.unsubscribe())

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return self._shell.subscription.assigned()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to. With a regular expression: the topics that match now."""
        return self._shell.subscription.topics

    # ---- records ----

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Like Consumer.poll."""
        return await self._open.poll(timeout_ms, max_records)

    async def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None, *, headers: bool = False
    ) -> pyarrow.RecordBatch:
        """Like Consumer.poll_arrow."""
        return await self._open.poll_arrow(timeout_ms, max_records, headers=headers)

    async def fetch(self, timeout_ms: float = 500) -> dict[TopicPartition, RecordSet]:
        """Like Consumer.fetch."""
        return await self._open.fetch(timeout_ms)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records until consumer.timeout.ms passes without one; by default forever."""
        while (records := await self._open.next_records()) is not None:
            for record in records:
                yield record

    def wakeup(self) -> None:
        """Make the running poll(), or the next one, raise WakeupError. Any thread may call this."""
        self._poll_event.is_woken = True
        if self._begun is not None:
            self._begun.loop.call_soon_threadsafe(self._poll_event.wake)

    # ---- positions ----

    def seek(
        self,
        tp: TopicPartition,
        offset: int | OffsetAndMetadata,
        offset_epoch: bytes | None = None,
    ) -> None:
        """Like Consumer.seek."""
        self._shell.seek(TopicPartition(*tp), offset, offset_epoch)
        self._poll_event.attention = True

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Like Consumer.seek_to_beginning."""
        self._shell.seek_by_timestamp(partitions, to_end=False)
        self._poll_event.attention = True

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Like Consumer.seek_to_end."""
        self._shell.seek_by_timestamp(partitions, to_end=True)
        self._poll_event.attention = True

    async def position(self, tp: TopicPartition, timeout_ms: float | None = None) -> int:
        """Like Consumer.position."""
        return (await self._shell.position(TopicPartition(*tp), timeout_ms)).offset

    async def position_and_offset_epoch(
        self, tp: TopicPartition, timeout_ms: float | None = None
    ) -> OffsetAndMetadata:
        """Like Consumer.position_and_offset_epoch."""
        shell = self._shell
        return shell.offset_and_epoch(await shell.position(TopicPartition(*tp), timeout_ms))

    def pause(self, *partitions: TopicPartition) -> None:
        """Like Consumer.pause."""
        self._shell.pause(partitions, paused=True)
        self._poll_event.attention = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Like Consumer.resume."""
        self._shell.pause(partitions, paused=False)
        self._poll_event.wake()

    def paused(self) -> list[TopicPartition]:
        """The paused partitions."""
        return [row.tp for row in self._shell.subscription.partitions.values() if row.paused]

    def current_lag(self, tp: TopicPartition) -> int | None:
        """Like Consumer.current_lag."""
        return self._shell.current_lag(TopicPartition(*tp))

    # ---- offsets and topics ----

    async def beginning_offsets(
        self, partitions: Items[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return await self._shell.edge_offsets(partitions, timeout_ms, at_end=False)

    async def end_offsets(
        self, partitions: Items[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Like Consumer.end_offsets."""
        return await self._shell.edge_offsets(partitions, timeout_ms, at_end=True)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Like Consumer.offsets_for_times."""
        return await self._shell.offsets_for_times(timestamps, timeout_ms)

    async def partitions_for(
        self, topic: str, timeout_ms: float | None = None
    ) -> tuple[PartitionView, ...]:
        """The partitions of a topic, with their leaders, replicas and epochs."""
        return await self._shell.partitions_for(topic, timeout_ms)

    async def topics(self, timeout_ms: float | None = None) -> set[str]:
        """The names of all topics, without internal ones."""
        return await self._shell.topics(timeout_ms)

    # ---- commits ----

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Like Consumer.commit."""
        self._interceptors.on_commit(await self._shell.commit(offsets, timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Like Consumer.commit_async."""
        polls = self._polls
        polls.shell.own_group()
        found = polls.shell.offsets_to_commit(offsets)
        task = polls.loop.create_task(polls.commit_once(found, callback))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def committed(
        self, partitions: Items[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offset in each partition; None if there is none."""
        return await self._shell.committed(partitions, timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member's identity, for AIOProducer.send_offsets_to_transaction."""
        return self._shell.group_metadata()

    # ---- close ----

    async def close(self, timeout_ms: float = CLOSE_MS) -> None:
        """Like Consumer.close."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._unclosed is not None:
            self._unclosed.closed()
        if self._begun is not None:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=timeout_ms / 1000)
            await self._attending(self._begun.shell.close(timeout_ms))
            self._begun.run_callbacks()
            self._begun.shell.inbox.report_losses()
        self._interceptors.close()
