"""A client's view of the cluster: brokers, topics, and the leaders of partitions.

Metadata responses fill it, and never replace newer state by older (KIP-232; if a broker has no
partition epochs, by KIP-320's leader epochs). It sends nothing and does not expire.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from kstore.errors import (
    ErrorCode,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kstore.protocol.metadata.metadata import MetadataResponse, MetadataResponseTopic
from kstore.protocol.schema import ZERO_UUID
from kstore.types import TopicPartition

__all__ = ["Broker", "ClusterView", "PartitionView", "TopicView"]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's id and address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's leader (-1: none), replicas and in-sync replicas, by broker id.

    ``partition_epoch`` identifies the incarnation of the partition, unique in the cluster
    (KIP-232); -1 if the broker does not send it.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = -1

    def is_older_than(self, partition_epoch: int, leader_epoch: int) -> bool:
        """Whether these epochs prove a later state; -1 proves nothing."""
        return _is_older(self.partition_epoch, self.leader_epoch, partition_epoch, leader_epoch)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's id (zero if the broker has none), and its partitions in order.

    ``remaining`` is the number of its first partitions that producers use while the topic shrinks
    (KIP-253); -1: all.
    """

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: tuple[PartitionView, ...]
    remaining: int = -1

    @property
    def count(self) -> int:
        """The number of partitions that producers use."""
        return len(self.partitions) if self.remaining < 0 else self.remaining


@dataclass(slots=True)
class ClusterView:
    """Brokers and topics of the newest Metadata responses.

    ``uses_partition_epochs`` is the setting kstore.kip232.enable. Unknown numbers are -1.
    """

    uses_partition_epochs: bool = True
    cluster_id: str | None = None
    controller_id: int = -1
    max_partition_epoch: int = -1
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicView] = field(default_factory=dict)
    topic_errors: dict[str, int] = field(default_factory=dict)

    # ---- updates ----

    def update(self, response: MetadataResponse, interest: Collection[str] | None = None) -> bool:
        """Apply a response; topics that it does not contain do not change.

        Returns False, and changes nothing, if the response is outdated for a topic of interest
        (None: all): then ask again after a pause, preferably another broker.
        """
        self._meet(response.cluster_id)
        if self.is_outdated(response, interest):
            return False
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        if self.uses_partition_epochs:
            newest = max(self.max_partition_epoch, response.max_partition_epoch)
            self.max_partition_epoch = newest
        self.brokers = {
            row.node_id: Broker(row.node_id, row.host, row.port, row.rack)
            for row in response.brokers
        }
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.NONE:
                self.topics[topic.name] = self._topic_view(topic)
                self.topic_errors.pop(topic.name, None)
            else:
                self.topics.pop(topic.name, None)
                self.topic_errors[topic.name] = topic.error_code
        return True

    def is_outdated(
        self, response: MetadataResponse, interest: Collection[str] | None = None
    ) -> bool:
        """Whether a response is older than the view, by KIP-232's rule: its largest partition epoch
        is smaller, or, for a partition of interest, the partition epoch is smaller, or with the
        same partition epoch the leader epoch is smaller. If one side has no partition epoch, the
        rule does not apply.
        """
        if not self.uses_partition_epochs:
            return False
        rows = [
            topic
            for topic in response.topics
            if topic.name is not None and (interest is None or topic.name in interest)
        ]
        if rows and -1 < response.max_partition_epoch < self.max_partition_epoch:
            return True
        for topic in rows:
            known = self.topics.get(topic.name or "")
            if known is None:
                continue
            for row in topic.partitions:
                if row.partition_index >= len(known.partitions):
                    continue
                old = known.partitions[row.partition_index]
                epochs = row.partition_epoch, row.leader_epoch
                if _is_older(*epochs, old.partition_epoch, old.leader_epoch):
                    return True
        return False

    def _meet(self, cluster_id: str | None) -> None:
        """Another cluster answers at the same addresses: drop everything."""
        if cluster_id and self.cluster_id and cluster_id != self.cluster_id:
            self.max_partition_epoch = -1
            self.topics.clear()
            self.topic_errors.clear()

    def _topic_view(self, topic: MetadataResponseTopic) -> TopicView:
        view = _topic_view(topic, self.uses_partition_epochs)
        known = self.topics.get(view.name)
        if known is None or known.topic_id != view.topic_id or view.topic_id == ZERO_UUID:
            return view
        rows = [_newer(*pair) for pair in zip(view.partitions, known.partitions, strict=False)]
        rows += view.partitions[len(rows) :]
        return replace(view, partitions=tuple(rows))

    def update_leader(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """A leader from an error response (KIP-951); applied if its epoch is newer. Returns whether
        it was.
        """
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions) or leader < 0:
            return False
        row = topic.partitions[tp.partition]
        if leader_epoch <= row.leader_epoch:
            return False
        rows = list(topic.partitions)
        rows[tp.partition] = replace(row, leader=leader, leader_epoch=leader_epoch)
        self.topics[tp.topic] = replace(topic, partitions=tuple(rows))
        return True

    def update_broker(self, broker: Broker) -> None:
        """A broker's address from a response other than Metadata."""
        known = self.brokers.get(broker.node_id)
        if known is None or (known.host, known.port) != (broker.host, broker.port):
            self.brokers[broker.node_id] = broker

    # ---- lookup ----

    def topic(self, name: str) -> TopicView:
        """The topic, or the exception for the broker's error about it."""
        view = self.topics.get(name)
        if view is not None:
            return view
        code = self.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise error_for(code, f"topic {name!r}: {type(error_for(code)).description}")

    def partition(self, tp: TopicPartition) -> PartitionView:
        """The partition; raises what `topic` raises, or UnknownTopicOrPartitionError."""
        topic = self.topic(tp.topic)
        if not 0 <= tp.partition < len(topic.partitions):
            raise UnknownTopicOrPartitionError(
                f"topic {tp.topic!r} has partitions 0 to {len(topic.partitions) - 1}, "
                f"not {tp.partition}"
            )
        return topic.partitions[tp.partition]

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; raises what `topic` raises."""
        return len(self.topic(topic).partitions)

    def leader(self, tp: TopicPartition) -> int:
        """The broker id of a partition's leader; raises if there is no partition or leader."""
        leader = self.partition(tp).leader
        if leader not in self.brokers:
            raise LeaderNotAvailableError(f"partition {tp} has no leader at the moment")
        return leader

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The leader epoch of a known partition, else -1."""
        row = self._known(tp)
        return -1 if row is None else row.leader_epoch

    def partition_epoch(self, tp: TopicPartition) -> int:
        """The partition epoch of a known partition, else -1."""
        row = self._known(tp)
        return -1 if row is None else row.partition_epoch

    def is_behind(self, tp: TopicPartition, partition_epoch: int, leader_epoch: int) -> bool:
        """Whether these epochs, of a committed offset or one stored elsewhere, are newer than the
        view of the partition: a consumer then waits for newer metadata (KIP-232, 6 and 7).
        """
        if not self.uses_partition_epochs or partition_epoch < 0:
            return False
        row = self._known(tp)
        if row is None:
            return self.max_partition_epoch < partition_epoch
        return row.is_older_than(partition_epoch, leader_epoch)

    def is_another_life(self, tp: TopicPartition, partition_epoch: int) -> bool:
        """Whether an offset of this partition epoch belongs to a deleted topic of the same name
        (KIP-232).
        """
        return -1 < partition_epoch < self.partition_epoch(tp)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic id, if it is known."""
        return next((t.name for t in self.topics.values() if t.topic_id == topic_id), None)

    def topic_id(self, name: str) -> uuid.UUID:
        """A topic's id, or the zero id."""
        view = self.topics.get(name)
        return ZERO_UUID if view is None else view.topic_id

    def _known(self, tp: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]


def _is_older(
    partition_epoch: int, leader_epoch: int, other_partition_epoch: int, other_leader_epoch: int
) -> bool:
    """Whether the first two epochs prove an older state than the others; -1 proves nothing."""
    if -1 in (partition_epoch, other_partition_epoch):
        return False
    if partition_epoch != other_partition_epoch:
        return partition_epoch < other_partition_epoch
    return -1 < leader_epoch < other_leader_epoch


def _newer(new: PartitionView, old: PartitionView) -> PartitionView:
    """Chooses between two states of a partition of one topic: an older leader epoch is ignored
    (KIP-320), and a response without a partition epoch does not remove a known one.
    """
    if -1 < new.leader_epoch < old.leader_epoch:
        return old
    if new.partition_epoch == -1 != old.partition_epoch:
        return replace(new, partition_epoch=old.partition_epoch)
    return new


def _topic_view(topic: MetadataResponseTopic, uses_partition_epochs: bool) -> TopicView:
    rows = sorted(topic.partitions, key=lambda row: row.partition_index)
    partitions = tuple(
        PartitionView(
            row.partition_index,
            row.leader_id,
            row.leader_epoch,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
            tuple(row.offline_replicas),
            row.partition_epoch if uses_partition_epochs else -1,
        )
        for row in rows
    )
    return TopicView(
        topic.name or "", topic.topic_id, topic.is_internal, partitions, topic.partition_count
    )
