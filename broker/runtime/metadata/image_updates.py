"""Applies UpdateMetadata requests to the metadata image of a broker in a cluster.

The data plane's table also gets every partition of the cluster, so that the response to a request
for a partition on another broker names the leader. UpdateMetadata does not contain settings of
topics: they are read from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore.broker.coordination.config_nodes import read_topic_configs
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, PartitionImage, TopicImage
from kstore.broker.state.metadata.retirement import Retirement
from kstore.protocol.controller.broker_requests import (
    FULL,
    UpdateMetadataBroker,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataTopic,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = ["ImageUpdates"]

log = logging.getLogger("kstore.broker")
DELETED = -2
UNKNOWN = PartitionImage(-1, -1, (), ())
"""A partition without metadata so far, although a partition with a larger index has metadata."""


class HostsReplicas(Protocol):
    """The owner of this broker's replicas. Updates of the image do not change them."""

    @property
    def hosted(self) -> Collection[TopicPartition]:
        """The partitions with a replica on this broker."""

    def led(self) -> Iterable[TopicPartition]:
        """The partitions that this broker leads."""

    def entry(self, name: str, topic_id: UUID) -> TopicEntry:
        """The table's entry of a topic, created if missing."""

    def stop(self, place: TopicPartition) -> None:
        """Stop leading or following a partition."""

    def forget_topic(self, name: str, topic_id: bytes) -> None:
        """Stop the replicas of a deleted topic."""


class ImageUpdates:
    """Applies UpdateMetadata to the image, and wakes tasks that wait for a change."""

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        table: PartitionTable,
        replicas: HostsReplicas,
    ) -> None:
        self.on_topic_added: list[Callable[[TopicImage], object]] = []
        """Called with a new topic, shortly before the image has it."""
        self.on_topic_deleted: list[Callable[[str, UUID], object]] = []
        """Called with the name of a deleted topic."""
        self.on_partitions_gone: list[Callable[[str, int], object]] = []
        """Called after a contraction with the topic's name and its number of partitions."""
        self.on_broker_gone: list[Callable[[int], object]] = []
        """Called with the id of a broker that has left, or has new endpoints."""
        self._node = node
        self._store = store
        self._metadata = metadata
        self._table = table
        self._replicas = replicas
        self._configs: dict[UUID, Mapping[str, str]] = {}  # for topics not in the image yet
        self._taken: list[TopicImage] = []  # the image is copied once per slice
        self._next_change: asyncio.Future[None] | None = None

    async def update(self, request: UpdateMetadataRequest) -> None:
        """Apply one request, which has all live brokers and some partitions."""
        slices = Slices()
        await self._take_brokers(request, slices)
        gone = [topic for topic in request.topic_states if _is_deleted(topic)]
        there = [topic for topic in request.topic_states if not _is_deleted(topic)]
        self._remove((topic.topic_name, topic.topic_id) for topic in gone)
        configs = await self.configs_of((topic.topic_name, topic.topic_id) for topic in there)
        # An older request can arrive late, on another connection.
        may_shrink = request.max_partition_epoch >= self._metadata.image.max_partition_epoch
        try:
            for topic in there:
                await self._take_topic(topic, configs[topic.topic_name], slices, may_shrink)
        finally:  # including what was applied before a failure
            self._publish_taken()
        if request.type == FULL:
            named = {topic.topic_name for topic in there}
            known = self._metadata.image.topics
            self._remove((name, known[name].topic_id) for name in known if name not in named)
        self._publish(self._metadata.image.with_partition_epoch(request.max_partition_epoch))
        self._changed()

    async def configs_of(self, topics: Iterable[tuple[str, UUID]]) -> dict[str, Mapping[str, str]]:
        """The settings of topics, by name. Settings of new topics are read from the store."""
        found: dict[str, Mapping[str, str]] = {}
        missing: list[tuple[str, UUID]] = []
        for name, topic_id in topics:
            known = self._metadata.image.topics.get(name)
            if known is not None and known.topic_id == topic_id:
                found[name] = known.configs
            elif topic_id in self._configs:
                found[name] = self._configs[topic_id]
            else:
                missing.append((name, topic_id))
        if missing:
            read = await self._node.run_blocking(
                lambda: [read_topic_configs(self._store, name) for name, _ in missing]
            )
            for (name, topic_id), configs in zip(missing, read, strict=True):
                found[name] = self._configs[topic_id] = configs
        return found

    def forget_configs(self) -> None:
        """Drop cached configs of topics that are not in the image yet: they may have changed."""
        self._configs.clear()

    async def wait_until(self, check: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the image fulfils a condition. Returns False if it does not within the
        timeout.
        """
        loop = self._node.loop
        deadline = loop.time() + timeout_s
        while not check():
            left = deadline - loop.time()
            if left <= 0:
                return False
            if self._next_change is None:
                self._next_change = loop.create_future()
            await asyncio.wait({self._next_change}, timeout=left)
        return True

    def _changed(self) -> None:
        waiting, self._next_change = self._next_change, None
        if waiting is not None:
            waiting.set_result(None)

    # ---- brokers ----

    async def _take_brokers(self, request: UpdateMetadataRequest, slices: Slices) -> None:
        before = self._metadata.image.brokers
        image = self._metadata.image.with_live_brokers(
            map(_broker_image, request.live_brokers), request.controller_id
        )
        self._publish(image)
        for node_id, known in before.items():
            now = image.brokers.get(node_id)
            if node_id != self._node.node_id and (now is None or now.endpoints != known.endpoints):
                for callback in self.on_broker_gone:
                    callback(node_id)
        if before is not image.brokers:
            self._metadata.forget_departed_later(self._node.loop)
        alive = {node.node_id: node.epoch for node in image.brokers.values()}
        replication = self._table.replication
        replication.racks = {
            node.node_id: node.rack.encode() for node in image.brokers.values() if node.rack
        }
        if alive == replication.live:
            return
        replication.live = alive
        for place in self._replicas.led():
            partition = self._table.partition(place.topic.encode(), place.partition)
            if partition is not None and partition.online:
                partition.advance()  # a request may have waited for a follower that has left
            await slices.breathe()

    # ---- topics ----

    def _publish(self, image: MetadataImage) -> None:
        self._metadata.publish(image)

    def _publish_taken(self) -> None:
        """Publish the topics of this slice."""
        taken, self._taken = self._taken, []
        self._publish(self._metadata.image.with_topics(*taken))

    async def _take_topic(
        self,
        topic: UpdateMetadataTopic,
        configs: Mapping[str, str],
        slices: Slices,
        may_shrink: bool,
    ) -> None:
        known = self._metadata.image.topics.get(topic.topic_name)
        if known is not None and known.topic_id != topic.topic_id:
            self._remove([(topic.topic_name, known.topic_id)])
            known = None
        partitions = [] if known is None else list(known.partitions)
        entry = self._replicas.entry(topic.topic_name, topic.topic_id)
        if may_shrink and 0 <= topic.partition_total < len(partitions):
            del partitions[topic.partition_total :]
            self._forget_retired(topic.topic_name, topic.partition_total)
        for state in sorted(topic.partition_states, key=lambda state: state.partition_index):
            index = state.partition_index
            while len(partitions) <= index:
                partitions.append(UNKNOWN)
            partitions[index] = _partition_image(partitions[index], state)
            self._note_leader(entry, index, partitions[index])
            if slices.over:
                self._publish_taken()
                await slices.breathe()
        now = self._metadata.image.topics.get(topic.topic_name)
        if now is not None and now.topic_id == topic.topic_id:
            configs = now.configs  # which may have changed meanwhile
        taken = TopicImage(
            topic.topic_name, topic.topic_id, tuple(partitions), configs, _retirement(topic)
        )
        self._taken.append(taken)
        if known is None:
            self._configs.pop(topic.topic_id, None)
            # Its logs may have been opened before, with earlier settings.
            for callback in self.on_topic_added:
                callback(taken)

    def _forget_retired(self, name: str, count: int) -> None:
        """Remove the partitions that a contraction has removed."""
        for place in list(self._replicas.hosted):
            if place.topic == name and place.partition >= count:
                self._replicas.stop(place)
        self._table.remove_partitions(name.encode(), count)
        for callback in self.on_partitions_gone:
            callback(name, count)

    def _note_leader(self, entry: TopicEntry, index: int, image: PartitionImage) -> None:
        """Pass the leader of a partition without a replica on this broker to the data plane."""
        place = TopicPartition(entry.name.decode(), index)
        if place in self._replicas.hosted:
            return
        partition = self._table.partition(entry.name, index)
        if partition is None:
            partition = Partition(entry, index, None, leader_id=image.leader)
            self._table.add_partition(partition)
        if partition.log is None:
            partition.leader_id = image.leader
            partition.leader_epoch = image.leader_epoch
            partition.partition_epoch = image.partition_epoch

    def _remove(self, topics: Iterable[tuple[str, UUID]]) -> None:
        """Remove these topics, unless their ids have changed meanwhile. The image is copied
        once.
        """
        image = self._metadata.image
        gone = [
            (name, topic_id)
            for name, topic_id in topics
            if name in image.topics and image.topics[name].topic_id == topic_id
        ]
        for name, topic_id in gone:
            self._replicas.forget_topic(name, topic_id.bytes)
            self._configs.pop(topic_id, None)
        self._publish(self._metadata.image.without_topics(*(name for name, _ in gone)))
        for name, topic_id in gone:
            for callback in self.on_topic_deleted:
                try:
                    callback(name, topic_id)
                except Exception:
                    log.exception("topic %s was deleted, but the broker failed to react", name)


def _is_deleted(topic: UpdateMetadataTopic) -> bool:
    return any(state.leader == DELETED for state in topic.partition_states)


def _retirement(topic: UpdateMetadataTopic) -> Retirement | None:
    if topic.retired_from < 0:
        return None
    return Retirement(
        topic.retired_from,
        topic.retired_epoch,
        topic.retired_partition_epoch,
        topic.retirement_holds,
    )


def _broker_image(broker: UpdateMetadataBroker) -> BrokerImage:
    endpoints = tuple(Endpoint(end.listener, end.host, end.port) for end in broker.endpoints)
    return BrokerImage(broker.id, endpoints, broker.rack, broker.epoch)


def _partition_image(known: PartitionImage, state: UpdateMetadataPartition) -> PartitionImage:
    return known._replace(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        partition_epoch=state.partition_epoch,
        state_version=state.state_version,
        offline=tuple(state.offline_replicas),
        elr=tuple(state.eligible_leader_replicas),
        last_known_elr=tuple(state.last_known_elr),
    )
