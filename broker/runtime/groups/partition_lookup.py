"""Partitions that a commit names and this broker does not know yet: their owner may have got them
from another broker's metadata. The coordination store has them if they exist. Then the commit waits
briefly, because the controller is about to send new metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.coordination.partition_nodes import max_partition_epoch
from kstore.broker.coordination.store import StoreError
from kstore.broker.coordination.znodes import find_topics, read_made
from kstore.broker.state.metadata.topic_rules import is_legal_name
from kstore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from uuid import UUID

    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.metadata.image_updates import ImageUpdates
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = ["NamedPartition", "PartitionLookup", "waiting_commits"]

WAIT_S = 1.0
"""The time limit for the store, and again for the controller."""
LINE_S = 2.5
"""The time limit of a commit for earlier commits, the store and the controller together. It is
longer than both waits of a single commit.
"""
BEHIND_S = 3.0
"""The time limit of another request for earlier commits. It is longer than theirs, so all of them
have ended by then.
"""


class NamedPartition(NamedTuple):
    """A partition as a request names it: by the name or the id of its topic."""

    topic: str
    topic_id: UUID
    """ZERO_UUID if the topic is given by name."""
    partition: int

    def is_in(self, image: MetadataImage) -> bool:
        """Whether this image has it."""
        if self.topic_id == ZERO_UUID:
            return image.partition(self.topic, self.partition) is not None
        topic = image.topic_by_id(self.topic_id)
        return topic is not None and 0 <= self.partition < len(topic.partitions)


class PartitionLookup:
    """Finds new partitions, for a broker of a cluster."""

    def __init__(
        self, node: Node, store: Store, metadata: MetadataCache, images: ImageUpdates
    ) -> None:
        self._node = node
        self._store = store
        self._metadata = metadata
        self._images = images
        self._lines: dict[str, asyncio.Lock] = {}
        """The queues of groups with waiting commits."""
        self._waiting: dict[str, int] = {}
        self._looking: asyncio.Future[list[NamedPartition]] | None = None

    def has_line(self, group_id: str) -> bool:
        """Whether commits of a group wait: later ones must not overtake them."""
        return group_id in self._lines

    def line(self, group_id: str) -> AbstractAsyncContextManager[None]:
        """A place in the queue after the group's earlier commits, from this call on. Entering the
        context waits for them. Raises TimeoutError if waiting and the work in the context take
        longer than LINE_S.
        """
        return self._place(group_id, LINE_S)

    def behind(self, group_id: str) -> AbstractAsyncContextManager[None]:
        """As `line`, for a request that is not a commit. Raises TimeoutError after BEHIND_S."""
        return self._place(group_id, BEHIND_S)

    def _place(self, group_id: str, limit_s: float) -> AbstractAsyncContextManager[None]:
        line = self._lines.setdefault(group_id, asyncio.Lock())
        self._waiting[group_id] = self._waiting.get(group_id, 0) + 1
        return self._in_line(group_id, line, limit_s)

    @asynccontextmanager
    async def _in_line(
        self, group_id: str, line: asyncio.Lock, limit_s: float
    ) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(limit_s), line:
                yield
        finally:
            self._waiting[group_id] -= 1
            if not self._waiting[group_id]:
                del self._waiting[group_id]
                del self._lines[group_id]

    async def await_known(self, named: Collection[NamedPartition]) -> bool:
        """Wait until this broker knows all of these partitions that exist. Returns False if the
        store does not answer, or the controller's metadata does not arrive in time.
        """
        image = self._metadata.image
        unknown = [each for each in named if each.partition >= 0 and not each.is_in(image)]
        if not unknown:
            return True
        try:
            async with asyncio.timeout(WAIT_S):
                made = await self._look_up(image, unknown)
        except (StoreError, TimeoutError):
            return False
        return await self._images.wait_until(
            lambda: all(each.is_in(self._metadata.image) for each in made), WAIT_S
        )

    async def _look_up(
        self, image: MetadataImage, unknown: list[NamedPartition]
    ) -> list[NamedPartition]:
        """Look partitions up in the store. There is one call at a time, even if no request waits
        for the last one any more, since elections need the store's thread, too.
        """
        while self._looking is not None and not self._looking.done():
            await asyncio.wait([self._looking])
        job = self._node.run_blocking(lambda: _made(self._store, image, unknown))
        self._looking = asyncio.ensure_future(job)
        self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._looking)


def waiting_commits(lookup: Lazy[PartitionLookup] | None, group_id: str) -> PartitionLookup | None:
    """The part with the queue of the group's waiting commits. None if none waits."""
    if lookup is not None and lookup.made is not None and lookup.made.has_line(group_id):
        return lookup.made
    return None


def _made(
    store: Store, image: MetadataImage, named: Collection[NamedPartition]
) -> list[NamedPartition]:
    """The partitions that exist. Blocks."""
    names = _names(store, image, {each.topic_id for each in named} - {ZERO_UUID})
    topics = {names.get(each.topic_id, each.topic) for each in named}
    counts = {name: read_made(store, name) for name in topics if is_legal_name(name)}
    made = []
    for each in named:
        count = counts.get(names.get(each.topic_id, each.topic))
        if count is not None and each.topic_id in (ZERO_UUID, count.topic_id):
            made += [each] if each.partition < count.partitions else []
    return made


def _names(store: Store, image: MetadataImage, ids: Collection[UUID]) -> dict[UUID, str]:
    """The names of topics by their ids. The store has no index by id. It is searched only if it has
    a newer partition epoch than this broker.
    """
    names = {topic_id: image.names[topic_id] for topic_id in ids if topic_id in image.names}
    missing = set(ids) - names.keys()
    if missing and 0 <= image.max_partition_epoch < max_partition_epoch(store):
        names |= find_topics(store, missing)
    return names
