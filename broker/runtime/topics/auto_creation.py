"""Creates the topics that clients ask for in Metadata and that do not exist
(``auto.create.topics.enable``). A client waits only a moment, because the same response describes
other topics: while the controller or a log dir hangs, the creation continues without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kstore.broker.state.metadata.topic_rules import NewTopic, TopicError
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.topics.topics import Topics

__all__ = ["AutoCreation"]

WAIT_S = 1.0
"""How long a client waits for new topics. A creation usually takes milliseconds."""
TEMPORARY = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Temporary errors of a creation. Clients get another error, after which they retry."""


class AutoCreation:
    """The topics that are being created because clients asked for them."""

    def __init__(self, node: Node, topics: Topics) -> None:
        self._loop = node.loop
        self._topics = topics
        self._creations: dict[str, asyncio.Future[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def create(self, names: Iterable[str]) -> dict[str, int]:
        """Create these topics, in this order. Returns the error codes of those that do not exist
        yet: LEADER_NOT_AVAILABLE if the creation takes longer than a second. Requests for the same
        topic wait for one creation.
        """
        names = list(names)
        added = [name for name in names if name not in self._creations]
        if added:
            begun = {name: self._loop.create_future() for name in added}
            self._creations |= begun
            task = self._loop.create_task(self._create_all(begun))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        creations = {name: self._creations[name] for name in names}
        await asyncio.wait(creations.values(), timeout=WAIT_S)
        codes = {
            name: creation.result() if creation.done() else ErrorCode.LEADER_NOT_AVAILABLE
            for name, creation in creations.items()
        }
        return {name: code for name, code in codes.items() if code != ErrorCode.NONE}

    async def _create_all(self, creations: Mapping[str, asyncio.Future[int]]) -> None:
        for name, creation in creations.items():
            try:
                creation.set_result(await self._create(name))
            except Exception as problem:  # noqa: BLE001 - whoever waits gets it
                creation.set_exception(problem)
                creation.exception()  # perhaps nobody waits any more
            finally:
                del self._creations[name]

    async def _create(self, name: str) -> int:
        try:
            await self._topics.ensure(NewTopic(name))
        except TopicError as problem:
            is_temporary = problem.code in TEMPORARY
            return ErrorCode.LEADER_NOT_AVAILABLE if is_temporary else problem.code
        return ErrorCode.NONE
