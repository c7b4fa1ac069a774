"""The metadata image: topics, partitions, leaders and brokers as this broker knows them.

Pure: nothing here reads the store or opens a log. Entries are immutable and replaced; `version`
grows with every change, and `on_change` is told, so that pre-encoded answers are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID
from zlib import crc32

from kstore.config.topic_configs import ORDERED_EXPANSION, is_on

if TYPE_CHECKING:
    from kstore.broker.state.groups.consumer.ordered_expansion import TopicGates

__all__ = ["BrokerImage", "Endpoint", "MetadataImage", "PartitionImage", "TopicImage"]

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class Endpoint(NamedTuple):
    """Where clients of one listener reach a broker."""

    listener: str
    host: str
    port: int


class BrokerImage(NamedTuple):
    """A broker that is alive."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    """The czxid of its registration (KIP-380): another life of the broker has a larger one."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """Its endpoint on a listener, or None."""
        return next((end for end in self.endpoints if end.listener == listener), None)


class PartitionImage(NamedTuple):
    """Who holds a partition and who leads it; leader -1 is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = -1
    """KIP-232: tells it from a partition of a deleted topic of the same name; -1: it has none."""
    state_version: int = 0
    """The version of its state in the store, which guards the next change of it."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment under way brings, and takes away."""
    prior_leader_epochs: tuple[tuple[int, int], ...] = ()
    """KIP-253: (partition, its leader epoch) of those that were there when this one was added."""
    offline: tuple[int, ...] = ()
    """Replicas that can't serve, on brokers that may be alive."""


class TopicImage(NamedTuple):
    """One topic."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    """What was set for this topic; everything else is the broker's default."""

    @property
    def internal(self) -> bool:
        """Whether the brokers keep their own records in it."""
        return self.name in INTERNAL_TOPICS


class MetadataImage:
    """Topics by name and id, and the brokers."""

    def __init__(self, cluster_id: str, on_change: Callable[[], None]) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.max_partition_epoch = -1
        """KIP-232: of all that were given out; a smaller one is older news than a larger."""
        self.ordered: set[str] = set()
        """The topics with kstore.ordered.expansion."""
        self.gates: Mapping[str, TopicGates] = {}
        """What is known of their expansions (runtime/expansion_gates.py)."""
        self.version = 0
        self.topics: dict[str, TopicImage] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.departed: dict[int, BrokerImage] = {}
        """Brokers that are gone, but not for long: clients are still told their addresses."""
        self._by_id: dict[UUID, str] = {}
        self._on_change = on_change

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of that id, or None."""
        name = self._by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition, or None where the topic or the partition does not exist."""
        image = self.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index]

    def put_topic(self, topic: TopicImage) -> None:
        """Add a topic, or replace what is known of it."""
        known = self.topics.get(topic.name)
        if known is not None:
            self._by_id.pop(known.topic_id, None)
        self.topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic.name
        if is_on(topic.configs, ORDERED_EXPANSION):
            self.ordered.add(topic.name)
        else:
            self.ordered.discard(topic.name)
        self._changed()

    def remove_topic(self, name: str) -> None:
        """Forget a topic; nothing happens if it is not known."""
        known = self.topics.pop(name, None)
        if known is not None:
            self._by_id.pop(known.topic_id, None)
            self.ordered.discard(name)
            self._changed()

    def raise_partition_epoch(self, epoch: int) -> None:
        """A partition epoch was given out, or a topic deleted under it."""
        if epoch > self.max_partition_epoch:
            self.max_partition_epoch = epoch
            self._changed()

    def put_broker(self, broker: BrokerImage, *, controller: bool = False) -> None:
        """Add a broker, or replace what is known of it."""
        self.brokers[broker.node_id] = broker
        self.departed.pop(broker.node_id, None)
        if controller:
            self.controller_id = broker.node_id
        self._changed()

    def set_brokers(self, brokers: Iterable[BrokerImage], controller_id: int) -> None:
        """These brokers are alive, and no others; nothing happens if that is known."""
        alive = {broker.node_id: broker for broker in brokers}
        if alive != self.brokers or controller_id != self.controller_id:
            known = self.departed | self.brokers
            self.departed = {each: known[each] for each in known if each not in alive}
            self.brokers = alive
            self.controller_id = controller_id
            self._changed()

    def remove_broker(self, node_id: int) -> None:
        """A broker is gone; nothing happens if it is not known."""
        gone = self.brokers.pop(node_id, None)
        if gone is not None:
            self.departed[node_id] = gone
            self._changed()

    def forget_departed(self, broker: BrokerImage) -> None:
        """A broker has been gone for long; nothing happens if it has come back meanwhile."""
        if self.departed.get(broker.node_id) is broker:
            del self.departed[broker.node_id]
            self._changed()

    def cut(self, counts: Mapping[str, int]) -> MetadataImage:
        """A view on which topics have only their first so many partitions. Its version is its own:
        of another cut, and of none, it is another.
        """
        view = copy(self)
        view.topics = dict(self.topics)
        for name, count in counts.items():
            topic = self.topics[name]
            view.topics[name] = topic._replace(partitions=topic.partitions[:count])
        mark = crc32(repr(sorted(counts.items())).encode()) & 0x7FFFFFFF
        view.version = self.version + ((mark or 1) << 32)
        return view

    def _changed(self) -> None:
        self.version += 1
        self._on_change()
