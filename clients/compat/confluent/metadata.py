"""Results of list_topics: the cluster's brokers, topics and partitions."""

from __future__ import annotations

from typing import Any

from kstore.clients.compat.confluent.error import KafkaError, raised_as
from kstore.clients.core.metadata import ClusterView
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread
from kstore.errors import ErrorCode
from kstore.errors import KafkaError as ProtocolKafkaError

__all__ = [
    "BrokerMetadata",
    "ClusterMetadata",
    "GroupMember",
    "GroupMetadata",
    "PartitionMetadata",
    "TopicMetadata",
    "cluster_id",
    "group_metadata",
    "list_topics",
    "timeout_ms",
]

FOR_EVER_MS = 2**31 - 1


class BrokerMetadata:
    """A broker's id and address."""

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class PartitionMetadata:
    """A partition's leader and replicas, by broker id."""

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id})"

    def __str__(self) -> str:
        return str(self.id)


class TopicMetadata:
    """A topic's partitions by index, or its error."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        wrong = f", {self.error}" if self.error is not None else ""
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{wrong})"

    def __str__(self) -> str:
        return str(self.topic)


class ClusterMetadata:
    """Brokers by id, topics by name."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


class GroupMember:
    """A member of a group, in the form of list_groups."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.client_id: str | None = None
        self.client_host: str | None = None
        self.metadata: bytes | None = None
        self.assignment: bytes | None = None


class GroupMetadata:
    """A group, in the form of list_groups."""

    def __init__(self) -> None:
        self.broker: BrokerMetadata | None = None
        self.id: str | None = None
        self.error: KafkaError | None = None
        self.state: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: list[GroupMember] = []

    def __repr__(self) -> str:
        return f"GroupMetadata({self.id})"

    def __str__(self) -> str:
        return str(self.id)


def timeout_ms(timeout_s: float | None) -> float:
    """A timeout in seconds; below 0, and None, mean forever."""
    return FOR_EVER_MS if timeout_s is None or timeout_s < 0 else timeout_s * 1000


def list_topics(
    thread: LoopThread,
    cluster: ClusterClient,
    topic: str | None,
    timeout: float | None,
    *,
    create: bool,
) -> ClusterMetadata:
    """Request the metadata of one topic, or of all. Raises KafkaException after the timeout."""
    names = None if topic is None else [topic]

    async def ask() -> ClusterMetadata:
        async def once() -> None:
            await cluster.refresh(names, create=create)

        await cluster.retrying(once, timeout_ms(timeout))
        return _metadata(cluster.view, names)

    try:
        return thread.run(ask())
    except ProtocolKafkaError as error:
        raise raised_as(error) from None


def cluster_id(thread: LoopThread, cluster: ClusterClient, timeout: float | None) -> str | None:
    """The cluster's id."""
    known = cluster.view.cluster_id
    return known or list_topics(thread, cluster, None, timeout, create=False).cluster_id


def _metadata(view: ClusterView, names: list[str] | None) -> ClusterMetadata:
    found = ClusterMetadata()
    found.cluster_id, found.controller_id = view.cluster_id, view.controller_id
    for broker in view.brokers.values():
        row = BrokerMetadata()
        row.id, row.host, row.port = broker.node_id, broker.host, broker.port
        found.brokers[row.id] = row
    if found.brokers:
        first = next(iter(found.brokers.values()))
        found.orig_broker_id, found.orig_broker_name = first.id, str(first)
    for name in names if names is not None else [*view.topics, *view.topic_errors]:
        found.topics[name] = _topic(view, name)
    return found


def _topic(view: ClusterView, name: str) -> TopicMetadata:
    topic = TopicMetadata()
    topic.topic = name
    known = view.topics.get(name)
    if known is None:
        code = view.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic.error = KafkaError(code)
        return topic
    for partition in known.partitions:
        row = PartitionMetadata()
        row.id, row.leader = partition.partition, partition.leader
        row.replicas, row.isrs = list(partition.replicas), list(partition.isr)
        if partition.leader < 0:
            row.error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        topic.partitions[row.id] = row
    return topic


def group_metadata(listing: Any, broker: BrokerMetadata | None) -> GroupMetadata:
    """A group from kstore's description."""
    found = GroupMetadata()
    found.id, found.state = listing.group_id, listing.state
    found.protocol_type, found.broker = listing.protocol_type, broker
    return found
