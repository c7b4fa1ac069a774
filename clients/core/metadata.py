"""What a client knows of the cluster: brokers, topics, and who leads which partition.

Filled from Metadata responses. It asks nobody and never expires by itself.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from kstore.errors import (
    ErrorCode,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kstore.protocol.metadata import MetadataResponse, MetadataResponseTopic
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
    """A partition's leader (-1: none), replicas and in-sync replicas, by broker id."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's id (zero where the broker has none), and its partitions in order."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: tuple[PartitionView, ...]


@dataclass(slots=True)
class ClusterView:
    """Brokers and topics as the last Metadata responses gave them."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicView] = field(default_factory=dict)
    topic_errors: dict[str, int] = field(default_factory=dict)

    def update(self, response: MetadataResponse) -> None:
        """Take over a response; topics that it does not name stay as they are."""
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            row.node_id: Broker(row.node_id, row.host, row.port, row.rack)
            for row in response.brokers
        }
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.NONE:
                self.topics[topic.name] = _topic_view(topic)
                self.topic_errors.pop(topic.name, None)
            else:
                self.topics.pop(topic.name, None)
                self.topic_errors[topic.name] = topic.error_code

    def topic(self, name: str) -> TopicView:
        """The topic, or the exception for what the broker said about it."""
        view = self.topics.get(name)
        if view is not None:
            return view
        code = self.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise error_for(code, f"topic {name!r}: {type(error_for(code)).description}")

    def leader(self, tp: TopicPartition) -> int:
        """The broker id of a partition's leader; raises where there is no partition or leader."""
        topic = self.topic(tp.topic)
        if not 0 <= tp.partition < len(topic.partitions):
            raise UnknownTopicOrPartitionError(
                f"topic {tp.topic!r} has partitions 0 to {len(topic.partitions) - 1}, "
                f"not {tp.partition}"
            )
        leader = topic.partitions[tp.partition].leader
        if leader not in self.brokers:
            raise LeaderNotAvailableError(f"partition {tp} has no leader at the moment")
        return leader

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name that belongs to a topic id, if it is known."""
        return next((t.name for t in self.topics.values() if t.topic_id == topic_id), None)

    def topic_id(self, name: str) -> uuid.UUID:
        """A topic's id, or the zero id."""
        view = self.topics.get(name)
        return ZERO_UUID if view is None else view.topic_id


def _topic_view(topic: MetadataResponseTopic) -> TopicView:
    rows = sorted(topic.partitions, key=lambda row: row.partition_index)
    partitions = tuple(
        PartitionView(
            row.partition_index,
            row.leader_id,
            row.leader_epoch,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
            tuple(row.offline_replicas),
        )
        for row in rows
    )
    return TopicView(topic.name or "", topic.topic_id, topic.is_internal, partitions)
