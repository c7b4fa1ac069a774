"""The high watermarks of partitions, for lags (KIP-1226). This broker's table has those of
partitions that it leads. For the others it sends one ListOffsets request to each leader.

There is no second attempt: a high watermark that is not available now is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers

__all__ = ["PartitionEnds"]

CONSUMER = -1
LATEST = -1
TIMEOUT_S = 5.0


class PartitionEnds:
    """Asks leaders for the high watermarks of their partitions."""

    def __init__(
        self, node: Node, metadata: MetadataCache, table: PartitionTable, peers: Lazy[Peers]
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._table = table
        self._peers = peers

    async def of(self, wanted: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The high watermarks of the partitions whose leader has answered."""
        found: dict[TopicPartition, int] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for place in wanted:
            known = self._metadata.image.partition(place.topic, place.partition)
            if known is None or known.leader < 0:
                continue
            if known.leader != self._node.node_id:
                elsewhere.setdefault(known.leader, []).append(place)
                continue
            here = self._table.partition(place.topic.encode(), place.partition)
            if here is not None and here.online:
                found[place] = here.high_watermark
        answers = [self._ask(node_id, places) for node_id, places in elsewhere.items()]
        for answer in await asyncio.gather(*answers):
            found |= answer
        return found

    async def _ask(
        self, node_id: int, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, index in places:
            requested = topics.setdefault(topic, ListOffsetsTopic(name=topic))
            requested.partitions.append(
                ListOffsetsPartition(partition_index=index, timestamp=LATEST)
            )
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=list(topics.values()))
        try:
            response: ListOffsetsResponse = await self._peers().ask(node_id, request, TIMEOUT_S)
        except KafkaError:
            return {}
        return {
            TopicPartition(topic.name, row.partition_index): row.offset
            for topic in response.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE
        }
