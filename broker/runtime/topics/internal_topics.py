"""Creates the internal topics of streams groups, with the rights of the member whose heartbeat
found them missing. broker/state decides which topics are missing, and their settings.

A heartbeat does not wait; a later one finds the topics. If a topic cannot be created, the reason is
kept for a while and sent to the members. Then the broker tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kstore.broker.state.groups.streams.topics import InternalTopic
from kstore.broker.state.metadata.topic_rules import NewTopic, TopicError

if TYPE_CHECKING:
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.topics.topics import Topics

__all__ = ["InternalTopics"]

LOGGER = logging.getLogger(__name__)
DEFAULT_REPLICATION_FACTOR = -1


class InternalTopics:
    """Topics that are being created, and topics that could not be created."""

    def __init__(self, node: Node, topics: Topics) -> None:
        self._loop = node.loop
        self._topics = topics
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._errors: dict[str, tuple[str, float]] = {}

    def errors(self, names: Iterable[str]) -> dict[str, str]:
        """For each of these topics that could not be created, the reason."""
        now = self._loop.time()
        self._errors = {name: item for name, item in self._errors.items() if item[1] > now}
        return {name: self._errors[name][0] for name in names if name in self._errors}

    def create(self, topics: Mapping[str, InternalTopic], retry_s: float) -> None:
        """Begin to create the topics. Skips topics in progress, and topics that failed less than
        ``retry_s`` ago.
        """
        failed = self.errors(topics)
        for name, topic in topics.items():
            if name not in self._tasks and name not in failed:
                self._tasks[name] = self._loop.create_task(self._create(topic, retry_s))

    async def _create(self, topic: InternalTopic, retry_s: float) -> None:
        new = NewTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor or DEFAULT_REPLICATION_FACTOR,
            configs=topic.configs,
        )
        try:
            await self._topics.ensure(new)
        except (TopicError, OSError) as error:
            LOGGER.warning("internal topic %s can't be created: %s", topic.name, error)
            self._errors[topic.name] = (str(error), self._loop.time() + retry_s)
        finally:
            del self._tasks[topic.name]
