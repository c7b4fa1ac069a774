"""Hand-overs of partitions from the user's point of view: the group's side waits until the user is
in poll(), which calls the listener. See core/consumer/subscription.py.
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
    """Called when partitions are assigned and revoked; override the methods that you need.

    Consumer calls the methods in the thread that polls. AIOConsumer calls them on the loop, where
    they may be coroutine functions. poll() raises their exceptions.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Any:
        """These partitions will be assigned to other members; commit what was processed."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Any:
        """These partitions are new, in addition to the existing ones; you may seek."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Any:
        """Other members already have these partitions: nothing can be committed. By default it
        calls on_partitions_revoked.
        """
        return self.on_partitions_revoked(lost)


class ListenerCall(NamedTuple):
    """A listener's method for poll() to call, and what to call afterwards."""

    method: Callable[[Collection[TopicPartition]], Any]
    partitions: Collection[TopicPartition]
    done: Callable[[], None]


class ListenerCalls:
    """A `Handover`. `signal` is called when poll() has something to do."""

    def __init__(self, signal: Callable[[], None]) -> None:
        self.listener: RebalanceListener | None = None
        self.pending: deque[ListenerCall] = deque()
        """The calls for poll(), in this order."""
        self.wants_poll = False
        """Whether a hand-over waits until the user is in poll()."""
        self._signal = signal
        self._is_abandoned = False
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[Mapping[TopicPartition, Position]]] = []

    def abandon(self) -> None:
        """The user is gone: no listener is called any more, and no record counts as processed."""
        self._is_abandoned = True
        self.listener = None
        self._entered({})
        while self.pending:
            self.pending.popleft().done()

    def enter_poll(self, consumed: Mapping[TopicPartition, Position]) -> None:
        """The user is in poll() and has processed everything up to these positions. Any thread may
        call it.
        """
        self.wants_poll = False
        self._loop.call_soon_threadsafe(self._entered, consumed)

    def _entered(self, consumed: Mapping[TopicPartition, Position]) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(consumed)
        self._waiters.clear()

    async def safe_point(self) -> Mapping[TopicPartition, Position]:
        """Return when the user is in poll(), or closes the consumer: the positions up to which the
        user is done.
        """
        if self._is_abandoned:
            return {}
        waiter: asyncio.Future[Mapping[TopicPartition, Position]] = self._loop.create_future()
        self._waiters.append(waiter)
        self.wants_poll = True
        self._signal()
        return await waiter

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Have on_partitions_revoked called, unless there are no partitions."""
        if self.listener is not None and partitions:
            await self._call(self.listener.on_partitions_revoked, partitions)

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Have on_partitions_assigned called."""
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, partitions)

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Have on_partitions_lost called, unless there are no partitions."""
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
