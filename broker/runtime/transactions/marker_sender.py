"""Markers of a prepared transaction in a cluster: each goes to the leader of its partition, many in
one request, and counts once the followers there have it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import StoreError
from kstore.broker.runtime.peers.batches import PeerBatches
from kstore.broker.runtime.transactions.markers import (
    MARKERS_PER_TURN,
    PASSED_OVER,
    commit_markers,
    write_marker,
)
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
    from kstore.broker.runtime.broker import Broker

__all__ = ["MarkerSender"]

LOGGER = logging.getLogger(__name__)
TIMEOUT_S = 30.0
DONE = PASSED_OVER - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} | {ErrorCode.NONE}
"""A partition that a broker does not know may be too new for it."""


class MarkerSender:
    """Writes markers wherever their partitions are led."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._elsewhere: PeerBatches[WritableTxnMarker, WritableTxnMarkerResult] = PeerBatches(
            broker,
            lambda markers: WriteTxnMarkersRequest(markers=markers),
            lambda response: response.markers,
            TIMEOUT_S,
        )

    async def close(self) -> None:
        """Send no more."""
        await self._elsewhere.close()

    async def write(
        self, prepared: Transaction, coordinator_epoch: int, places: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Try each place once; those that failed are returned."""
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        failed: list[TopicPartition] = []
        for place in places:
            image = self._broker.image.partition(*place)
            if image is None and await self._is_gone(place):
                LOGGER.info("%s is gone: no marker of %r", place, prepared.transactional_id)
            elif image is None or image.leader < 0:
                failed.append(place)
            else:
                led[image.leader].append(place)
        sent = [
            self._write_here(prepared, coordinator_epoch, some)
            if node_id == self._broker.node_id
            else self._write_there(node_id, prepared, coordinator_epoch, some)
            for node_id, some in led.items()
        ]
        for found in await asyncio.gather(*sent):
            failed += [place for place, code in found.items() if code not in DONE]
            for place, code in found.items():
                if code != ErrorCode.NONE:
                    LOGGER.info("%s: no marker of %r: %s", place, prepared, error_for(code))
        return sorted(failed)

    async def _is_gone(self, place: TopicPartition) -> bool:
        """Whether a partition that is not in this broker's image is not in the store either."""
        store = self._broker.store
        node = f"/brokers/topics/{place.topic}/partitions/{place.partition}"
        try:
            return not await self._broker.run_blocking(lambda: store.exists(node))
        except StoreError:
            return False

    async def _write_here(
        self, prepared: Transaction, coordinator_epoch: int, places: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for count, place in enumerate(places, 1):
            found[place] = write_marker(
                self._broker,
                place,
                (prepared.producer_id, prepared.producer_epoch),
                coordinator_epoch,
                committed=prepared.state == PREPARE_COMMIT,
            )
            if count % MARKERS_PER_TURN == 0:
                await asyncio.sleep(0)
        written = {place for place, code in found.items() if code == ErrorCode.NONE}
        return found | await commit_markers(self._broker, written)

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
