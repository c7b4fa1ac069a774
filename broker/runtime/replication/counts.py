"""The number of partitions that producers must know (KIP-253). The controller sends it to leaders.

While an expansion is prepared, leaders refuse producers with the old count. While a contraction is
prepared, leaders of retiring partitions refuse all records. If a leader gets no further message
within the time limit, the controller may have rolled back without reaching it. It then reads the
coordination store itself, so that it does not refuse producers any longer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kstore.broker.coordination.contraction_nodes import read_contraction
from kstore.broker.coordination.store import StoreError
from kstore.broker.coordination.znodes import read_count

if TYPE_CHECKING:
    from kstore._fast.broker.partition import TopicEntry
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node

__all__ = ["PreparedCounts"]

TIMEOUT = "kstore.expansion.timeout.ms"


class PreparedCounts:
    """Topics for which this broker received another count than the cluster's metadata has."""

    def __init__(self, node: Node, store: Store, metadata: MetadataCache) -> None:
        self._node = node
        self._store = store
        self._metadata = metadata
        self._prepared: dict[str, TopicEntry] = {}
        self._looked_at: str | None = None
        """The topic that is being read from the store. Empty once a message about it arrives."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def apply(self, entry: TopicEntry, count: int, retired_from: int = -1) -> None:
        """Apply the controller's message: how many partitions producers must know, and from which
        index on partitions accept no records (-1: all accept them).
        """
        entry.partition_count = count
        entry.retired_from = retired_from
        name = entry.name.decode()
        self._prepared.pop(name, None)
        if self._looked_at == name:
            self._looked_at = None
        # An older inter.broker.protocol.version has no counts.
        if count >= 0 and (count != self._known(name) or _is_prepared(entry)):
            self._prepared[name] = entry
            self._look_later()

    def close(self) -> None:
        """Stop reading the store."""
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _known(self, name: str) -> int:
        """The count that clients get."""
        topic = self._metadata.image.topics.get(name)
        return -1 if topic is None else topic.producer_count

    def _look_later(self) -> None:
        if self._timer is None and self._looking is None:
            seconds = self._node.config[TIMEOUT] / 1000
            self._timer = self._node.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looking = self._node.loop.create_task(self._look_at_all())

    async def _look_at_all(self) -> None:
        try:
            for name, entry in list(self._prepared.items()):
                if self._prepared.get(name) is not entry:
                    continue  # a message arrived meanwhile
                if entry.partition_count == self._known(name) and not _is_prepared(entry):
                    del self._prepared[name]
                else:
                    await self._look_at(name, entry)
        except StoreError:
            pass  # checked again until a decision is possible
        finally:
            self._looking = None
        if self._prepared:
            self._look_later()

    async def _look_at(self, name: str, entry: TopicEntry) -> None:
        prepared = entry.partition_count
        self._looked_at = name
        if _is_prepared(entry):
            await self._look_at_contraction(name, entry)
            return
        count = await self._node.run_blocking(lambda: read_count(self._store, name))
        if self._looked_at != name or count is None:
            return
        del self._prepared[name]
        if count.topic_id.bytes == entry.topic_id and count.partitions < prepared:
            self._node.report(
                f"'{name}' has {count.partitions} partitions, and the controller prepared it for "
                f"{prepared} and did not say how that ended: its producers continue"
            )
            entry.partition_count = count.partitions

    async def _look_at_contraction(self, name: str, entry: TopicEntry) -> None:
        found = await self._node.run_blocking(lambda: read_contraction(self._store, name))
        if self._looked_at != name:
            return
        is_meant = found is not None and found.topic_id.bytes == entry.topic_id
        if found is None or not is_meant:
            del self._prepared[name]
            self._node.report(
                f"'{name}' keeps its {entry.partition_count} partitions, and the controller "
                "prepared it to shrink and did not say how that ended: its producers continue"
            )
            entry.retired_from = -1
        elif found.holds:
            del self._prepared[name]
            entry.partition_count = found.first


def _is_prepared(entry: TopicEntry) -> bool:
    """Whether a contraction is prepared. Producers then still count the retiring partitions."""
    return 0 <= entry.retired_from < entry.partition_count
