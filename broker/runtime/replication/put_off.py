"""What the controller has said of partitions whose log dir hangs: it is done once the log dir
answers again, unless something else was said meanwhile. Nobody waits for it, neither the controller
nor what it says of other log dirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.coordination.store import StoreError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.protocol.controller.broker_requests import (
        LeaderAndIsrPartition,
        LeaderAndIsrRequest,
        LeaderAndIsrTopic,
    )

__all__ = ["PutOff", "Said", "wait_for"]

RETRY_S = 1.0
"""After the store could not be reached."""


class Said(NamedTuple):
    """One partition of a request."""

    request: LeaderAndIsrRequest
    topic: LeaderAndIsrTopic
    state: LeaderAndIsrPartition

    @property
    def place(self) -> TopicPartition:
        """The partition that is meant."""
        return TopicPartition(self.topic.topic_name, self.state.partition_index)


class PutOff:
    """The last that was said of each such partition."""

    def __init__(
        self,
        node: Node,
        log_manager: LogManager,
        carry_out: Callable[[str], Awaitable[None]],
    ) -> None:
        """``carry_out(path)``: the log dir with this path answers again; StoreError: not yet."""
        self._node = node
        self._log_manager = log_manager
        self._carry_out = carry_out
        self._said: dict[TopicPartition, Said] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}

    def add(self, said: Said) -> None:
        """Its log dir hangs."""
        self._said[said.place] = said
        path = self._path(said.place)
        if path not in self._waiting:
            self._waiting[path] = self._node.loop.create_task(self._wait(path))

    def drop(self, places: Iterable[TopicPartition]) -> None:
        """Something else was said of these."""
        if self._said:
            for place in places:
                self._said.pop(place, None)

    def there(self, path: str) -> list[Said]:
        """What is to be done in one log dir; who has done it says `drop`."""
        return [said for place, said in self._said.items() if self._path(place) == path]

    def _path(self, place: TopicPartition) -> str:
        home = self._log_manager.home(place)
        return "" if home is None else home.path

    async def _wait(self, path: str) -> None:
        """Until what is under way in the log dir has ended; what is put off anew waits anew."""
        await wait_for(self._node, path)
        del self._waiting[path]
        while True:
            try:
                await self._carry_out(path)
                return
            except StoreError as problem:
                self._node.report(f"postponed work for {path} can't be done yet: {problem}")
            await asyncio.sleep(RETRY_S)


async def wait_for(node: Node, path: str) -> None:
    """Wait until all that is under way in a log dir has ended."""
    await node.dirs.run(path, "postponed work", _nothing)


def _nothing() -> None:
    """The call that ends behind all others."""
