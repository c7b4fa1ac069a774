"""Creates the topics that clients ask for in Metadata and that do not exist
(``auto.create.topics.enable``). A client waits only a moment, because the same response describes
other topics: while the controller or a log dir hangs, the creation continues without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kstore.broker.state.metadata.topic_rules import NewTopic, TopicError
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.topics.topics import Topics

__all__ = ["AutoTopicCreationManager"]

WAIT_S = 1.0
"""How long a client waits for new topics. A creation usually takes milliseconds."""
MOST = 1000
"""The limit of creations in progress. While that many hang, clients cannot add more."""
TEMPORARY = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Temporary errors of a creation. Clients get another error, after which they retry."""


class AutoTopicCreationManager:
    """The topics that are being created because clients asked for them."""

    def __init__(self, node: Node, topics: Topics) -> None:
        self._loop = node.loop
        self._topics = topics
        self._creations: dict[str, asyncio.Task[int]] = {}

    async def create(self, names: Sequence[str]) -> dict[str, int]:
        """Create these topics. Returns the error codes of those that do not exist yet:
        LEADER_NOT_AVAILABLE if the creation takes longer than a second. Requests for the same topic
        wait for one creation.
        """
        for name in names:
            if name not in self._creations and len(self._creations) < MOST:
                creation = self._creations[name] = self._loop.create_task(self._create(name))
                creation.add_done_callback(partial(self._end, name))
        creations = {name: self._creations[name] for name in names if name in self._creations}
        if creations:
            await asyncio.wait(creations.values(), timeout=WAIT_S)
        codes: dict[str, int] = dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
        for name, creation in creations.items():
            if creation.done() and not creation.cancelled():
                codes[name] = creation.result()
        return {name: code for name, code in codes.items() if code != ErrorCode.NONE}

    async def close(self) -> None:
        """Give up the creations that have not ended."""
        creations = list(self._creations.values())
        for creation in creations:
            creation.cancel()
        await asyncio.gather(*creations, return_exceptions=True)

    def _end(self, name: str, creation: asyncio.Task[int]) -> None:
        del self._creations[name]
        if not creation.cancelled():
            creation.exception()  # perhaps nobody waits any more

    async def _create(self, name: str) -> int:
        try:
            await self._topics.ensure(NewTopic(name))
        except TopicError as problem:
            is_temporary = problem.code in TEMPORARY
            return ErrorCode.LEADER_NOT_AVAILABLE if is_temporary else problem.code
        return ErrorCode.NONE
