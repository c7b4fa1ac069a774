"""Delays the controller's requests for partitions whose log dir hangs. They are executed once the
log dir answers again, unless newer requests have replaced them. The controller and requests for
other log dirs do not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kstore.broker.coordination.store import StoreError
from kstore.protocol.schema import ZERO_UUID
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.protocol.controller.broker_requests import (
        LeaderAndIsrPartition,
        LeaderAndIsrRequest,
        LeaderAndIsrTopic,
    )

__all__ = ["DelayedRole", "DelayedRoles", "wait_for"]

RETRY_S = 1.0
"""The pause after the store was unreachable."""


class DelayedRole(NamedTuple):
    """One partition of a request."""

    request: LeaderAndIsrRequest
    topic: LeaderAndIsrTopic
    state: LeaderAndIsrPartition

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic.topic_name, self.state.partition_index)


class DelayedRoles:
    """The last request for each partition in a log dir that hangs."""

    def __init__(
        self,
        node: Node,
        log_manager: LogManager,
        carry_out: Callable[[str], Awaitable[None]],
    ) -> None:
        """``carry_out(path)`` is called when the log dir with this path answers again. If it raises
        StoreError, it is called again later.
        """
        self._node = node
        self._log_manager = log_manager
        self._carry_out = carry_out
        self._roles: dict[TopicPartition, DelayedRole] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}

    def add(self, role: DelayedRole) -> None:
        """Delay a request: its log dir hangs."""
        self._roles[role.place] = role
        path = self._path(role.place)
        if path not in self._waiting:
            self._waiting[path] = self._node.loop.create_task(self._wait(path))

    def drop(self, places: Iterable[TopicPartition]) -> None:
        """Drop the requests for these partitions, because of newer ones."""
        if self._roles:
            for place in places:
                self._roles.pop(place, None)

    def epoch(self, place: TopicPartition, topic_id: UUID) -> int:
        """The leader epoch of the delayed role of a partition; -1 if there is none. A topic id of
        zeros matches any topic.
        """
        role = self._roles.get(place)
        if role is None or topic_id not in (ZERO_UUID, role.topic.topic_id):
            return -1
        return role.state.leader_epoch

    def in_log_dir(self, path: str) -> list[DelayedRole]:
        """The delayed requests for one log dir. The caller drops them when it has executed them."""
        return [role for place, role in self._roles.items() if self._path(place) == path]

    def _path(self, place: TopicPartition) -> str:
        home = self._log_manager.home(place)
        return "" if home is None else home.path

    async def _wait(self, path: str) -> None:
        """Wait until the log dir's calls have ended, then execute the requests. Repeat this for
        requests that are delayed again.
        """
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
    """Wait until all current calls in a log dir have ended."""
    await node.dirs.run(path, "postponed work", _nothing)


def _nothing() -> None:
    """A call that runs after all others and does nothing."""
