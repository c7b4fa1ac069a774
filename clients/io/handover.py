"""Hand-overs of partitions, as the user sees them: the group's side waits until the user is in
poll(), and what a listener does is done there. See core/subscription.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from kstore.clients.core.consumer.subscription import Position
from kstore.types import TopicPartition

__all__ = ["ListenerCall", "ListenerCalls", "RebalanceListener"]


class RebalanceListener:
    """Told when partitions come and go; override what is of interest.

    With a Consumer the methods run in the thread that polls, with an AIOConsumer on the loop, and
    may be coroutine functions there. What they raise is raised by poll().
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Any:
        """These go to other members; the time to commit what was done with them."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Any:
        """These came, in addition to those already there; the time to seek."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Any:
        """These are others' already: nothing can be committed. By default as if revoked."""
        return self.on_partitions_revoked(lost)


class ListenerCall(NamedTuple):
    """A method of the listener that poll() is to call, and what to call once that was done."""

    method: Callable[[Collection[TopicPartition]], Any]
    partitions: Collection[TopicPartition]
    done: Callable[[], None]


class ListenerCalls:
    """A `Handover`. `signal` is called when there is something for the user to do in poll()."""

    def __init__(self, signal: Callable[[], None]) -> None:
        self.listener: RebalanceListener | None = None
        self.pending: deque[ListenerCall] = deque()
        """For poll(), in this order."""
        self.wants_poll = False
        """Whether somebody waits until the user is in poll()."""
        self._signal = signal
        self._is_abandoned = False
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[Mapping[TopicPartition, Position]]] = []

    def abandon(self) -> None:
        """The user is gone: nobody is told any more, and nothing counts as done."""
        self._is_abandoned = True
        self.listener = None
        self._entered({})
        while self.pending:
            self.pending.popleft().done()

    def enter_poll(self, consumed: Mapping[TopicPartition, Position]) -> None:
        """The user is in poll(), done with all up to these positions. From any thread."""
        self.wants_poll = False
        self._loop.call_soon_threadsafe(self._entered, consumed)

    def _entered(self, consumed: Mapping[TopicPartition, Position]) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(consumed)
        self._waiters.clear()

    async def safe_point(self) -> Mapping[TopicPartition, Position]:
        """Return once the user is in poll(), or closes the consumer: what it is done with then."""
        if self._is_abandoned:
            return {}
        waiter: asyncio.Future[Mapping[TopicPartition, Position]] = self._loop.create_future()
        self._waiters.append(waiter)
        self.wants_poll = True
        self._signal()
        return await waiter

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Have on_partitions_revoked called, if there is anything to tell."""
        if self.listener is not None and partitions:
            await self._call(self.listener.on_partitions_revoked, partitions)

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Have on_partitions_assigned called."""
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, partitions)

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Have on_partitions_lost called, if there is anything to tell."""
        if self.listener is not None and partitions:
            await self._call(self.listener.on_partitions_lost, partitions)

    async def _call(
        self,
        method: Callable[[Collection[TopicPartition]], Any],
        partitions: Collection[TopicPartition],
    ) -> None:
        done = self._loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def finish_from_anywhere() -> None:
            self._loop.call_soon_threadsafe(finish)

        ordered = sorted(partitions)
        self.pending.append(ListenerCall(method, ordered, finish_from_anywhere))
        self._signal()
        await done
