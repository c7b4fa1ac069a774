"""In a cluster, sends the markers of prepared transactions to the leaders of their partitions, many
in one request. A marker is complete once the followers have it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import StoreError
from kstore.broker.runtime.peers.batches import PeerBatches
from kstore.broker.runtime.transactions.markers import MARKERS_PER_TURN, PASSED_OVER, Markers
from kstore.broker.state.transactions.state import PREPARE_COMMIT, Transaction
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.transactions.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers

__all__ = ["MarkerSender"]

LOGGER = logging.getLogger(__name__)
TIMEOUT_S = 30.0
RETRY_SECONDS = 0.1
"""The pause before failed markers are sent again. By then another broker may lead."""
DONE = PASSED_OVER - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} | {ErrorCode.NONE}
"""Errors after which a marker is not sent again. UNKNOWN_TOPIC_OR_PARTITION is not among them: the
broker may not know a new partition yet.
"""


class MarkerSender:
    """The MarkerWriter of a broker of a cluster."""

    retry_s = RETRY_SECONDS

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        markers: Markers,
        peers: Lazy[Peers],
    ) -> None:
        self._node = node
        self._store = store
        self._metadata = metadata
        self._markers = markers
        self._elsewhere: PeerBatches[WritableTxnMarker, WritableTxnMarkerResult] = PeerBatches(
            node.loop,
            peers,
            lambda markers: WriteTxnMarkersRequest(markers=markers),
            lambda response: response.markers,
            TIMEOUT_S,
        )

    async def close(self) -> None:
        """Stop sending."""
        await self._elsewhere.close()

    def write_now(
        self, prepared: Transaction, coordinator_epoch: int
    ) -> frozenset[TopicPartition] | None:
        """Always None: other brokers must answer first, and followers must have the markers."""
        return None

    async def write(
        self, prepared: Transaction, coordinator_epoch: int, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Try each partition once. Returns those that failed."""
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        failed: list[TopicPartition] = []
        for place in places:
            image = self._metadata.image.partition(*place)
            if image is None and await self._is_gone(place):
                LOGGER.info(
                    "%s was deleted: it gets no marker of %r", place, prepared.transactional_id
                )
            elif image is None or image.leader < 0:
                failed.append(place)
            else:
                led[image.leader].append(place)
        sent = [
            self._write_here(prepared, coordinator_epoch, some)
            if node_id == self._node.node_id
            else self._write_there(node_id, prepared, coordinator_epoch, some)
            for node_id, some in led.items()
        ]
        for found in await asyncio.gather(*sent):
            failed += [place for place, code in found.items() if code not in DONE]
            for place, code in found.items():
                if code != ErrorCode.NONE:
                    LOGGER.info(
                        "%s: the marker of %r was not written: %s", place, prepared, error_for(code)
                    )
        return sorted(failed)

    async def _is_gone(self, place: TopicPartition) -> bool:
        """Whether a partition that this broker's image does not have is missing in the store,
        too.
        """
        path = f"/brokers/topics/{place.topic}/partitions/{place.partition}"
        try:
            return not await self._node.run_blocking(lambda: self._store.exists(path))
        except StoreError:
            return False

    async def _write_here(
        self, prepared: Transaction, coordinator_epoch: int, places: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for count, place in enumerate(places, 1):
            found[place] = self._markers.write(
                place,
                (prepared.producer_id, prepared.producer_epoch),
                coordinator_epoch,
                committed=prepared.state == PREPARE_COMMIT,
                transaction_version=prepared.client_version,
            )
            if count % MARKERS_PER_TURN == 0:
                await asyncio.sleep(0)
        written = {place for place, code in found.items() if code == ErrorCode.NONE}
        return found | await self._markers.commit(written)

    async def _write_there(
        self,
        node_id: int,
        prepared: Transaction,
        coordinator_epoch: int,
        places: list[TopicPartition],
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[int]] = defaultdict(list)
        for place in places:
            topics[place.topic].append(place.partition)
        marker = WritableTxnMarker(
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            transaction_result=prepared.state == PREPARE_COMMIT,
            coordinator_epoch=coordinator_epoch,
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
            transaction_version=prepared.client_version,
        )
        try:
            result = await self._elsewhere.ask(node_id, marker)
        except KafkaError as problem:
            return dict.fromkeys(places, problem.code)
        found = dict.fromkeys(places, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        for topic in result.topics:
            for row in topic.partitions:
                found[TopicPartition(topic.name, row.partition_index)] = row.error_code
        return found
