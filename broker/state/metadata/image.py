"""The metadata image: topics, partitions, leaders and brokers as this broker knows them.

It is immutable. A change creates a new image, which replaces the old one in
runtime/metadata/cache.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from kstore.broker.state.metadata.gates import TopicGates
from kstore.broker.state.metadata.retirement import Retirement
from kstore.config.topic_configs import ORDERED_EXPANSION, is_on
from kstore.errors import ErrorCode

__all__ = [
    "BrokerImage",
    "Endpoint",
    "MetadataImage",
    "PartitionImage",
    "TopicImage",
    "new_partitions",
    "partition_epoch_error",
]

NO_EPOCH = -1
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Endpoint(NamedTuple):
    """The address of a broker on one listener."""

    listener: str
    host: str
    port: int


class BrokerImage(NamedTuple):
    """A live broker."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    """The czxid of its registration (KIP-380): it increases with each restart of the broker."""
    keeps_elr: bool = True
    """Whether it supports eligible leader replicas (KIP-966), according to its registration."""
    knows_contractions: bool = True
    """Whether it supports contractions, according to its registration."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """Its endpoint on a listener, or None."""
        return next((end for end in self.endpoints if end.listener == listener), None)


class PartitionImage(NamedTuple):
    """The replicas and the leader of a partition. Leader -1 means none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = -1
    """KIP-232: distinguishes the partition from one of a deleted topic with the same name. -1: it
    has none.
    """
    state_version: int = 0
    """The version of its state in the store. The next change checks it."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment in progress adds, and removes."""
    prior_leader_epochs: tuple[tuple[int, int], ...] = ()
    """KIP-253: (partition, its leader epoch) of the partitions that existed when this one was
    added.
    """
    offline: tuple[int, ...] = ()
    """Replicas that are offline on brokers that may be alive."""
    elr: tuple[int, ...] = ()
    """KIP-966: eligible leader replicas, which are outside the ISR but have all committed
    records.
    """
    last_known_elr: tuple[int, ...] = ()
    """The last leader of a partition without an ISR."""
    elr_min_isr: int = 0
    """The largest min.insync.replicas since the ELR exists. With a smaller value, the ELR may not
    have all committed records.
    """
    elr_writes: int = 0
    """How often the settings with min.insync.replicas had been written when `elr_min_isr` was
    determined. After two more writes, the value between them is not known.
    """
    recovering: bool = False
    """KIP-704: the leader was elected uncleanly and has not reported yet that it has recovered."""


def partition_epoch_error(requested: int, known: int) -> int:
    """Compare the partition epoch of a request with that of the partition (KIP-232):
    INVALID_PARTITION_EPOCH if the request's partition was deleted, UNKNOWN_TOPIC_OR_PARTITION if it
    is not known yet. -1 on either side means unknown, and is not checked.
    """
    if NO_EPOCH in (requested, known) or requested == known:
        return ErrorCode.NONE
    if requested < known:
        return ErrorCode.INVALID_PARTITION_EPOCH
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def new_partitions(assigned: Iterable[tuple[int, ...]]) -> tuple[PartitionImage, ...]:
    """Partitions on these replicas. The first replica leads. Equal partitions share one object
    until they differ.
    """
    made: dict[tuple[int, ...], PartitionImage] = {}
    partitions = []
    for replicas in assigned:
        if replicas not in made:
            made[replicas] = PartitionImage(replicas[0], 0, replicas, replicas)
        partitions.append(made[replicas])
    return tuple(partitions)


class TopicImage(NamedTuple):
    """One topic."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    """The topic's own settings. All others have the broker's defaults."""
    retirement: Retirement | None = None
    hidden: frozenset[int] = frozenset()
    """In the view of a group: partitions that it may not get
    (groups/consumer/ordered_expansion.py).
    """

    @property
    def producer_count(self) -> int:
        """The number of partitions that producers distribute records over."""
        retirement = self.retirement
        if retirement is not None and retirement.holds:
            return retirement.first
        return len(self.partitions)

    def takes_records(self, index: int) -> bool:
        """Whether a partition accepts records, because it does not retire."""
        return self.retirement is None or index < self.retirement.first

    @property
    def internal(self) -> bool:
        """Whether brokers store their own records in it."""
        return self.name in INTERNAL_TOPICS


class MetadataImage(NamedTuple):
    """Topics by name and id, and the brokers, as an immutable value. Its `with_` and `without_`
    methods return a new image, or this one if nothing changes.
    """

    cluster_id: str
    version: int = 0
    """A number that increases with every change."""
    controller_id: int = -1
    max_partition_epoch: int = -1
    """KIP-232: the largest allocated partition epoch. Metadata with a smaller one is older."""
    topics: Mapping[str, TopicImage] = MappingProxyType({})
    names: Mapping[UUID, str] = MappingProxyType({})
    """Topic names by id."""
    ordered: frozenset[str] = frozenset()
    """The topics with kstore.ordered.expansion."""
    gates: Mapping[str, TopicGates] = MappingProxyType({})
    """The gates of these topics (runtime/groups/expansion_gates.py)."""
    brokers: Mapping[int, BrokerImage] = MappingProxyType({})
    departed: Mapping[int, BrokerImage] = MappingProxyType({})
    """Brokers that have left recently. Clients still get their addresses."""

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of that id, or None."""
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """A partition, or None if the topic or the partition does not exist."""
        image = self.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index]

    def has_replaced(self, topic: str, index: int, epoch: int) -> bool:
        """Whether the partition was created after the one with this partition epoch and the same
        name. False if that is not known.
        """
        now = self.partition(topic, index)
        return now is not None and NO_EPOCH != epoch < now.partition_epoch

    def with_topics(self, *added: TopicImage) -> MetadataImage:
        """Add or replace topics. Copies the table of topics once, however many are added."""
        if not added:
            return self
        topics, names, ordered = dict(self.topics), dict(self.names), set(self.ordered)
        for topic in added:
            known = topics.get(topic.name)
            if known is not None:
                names.pop(known.topic_id, None)
            topics[topic.name] = topic
            names[topic.topic_id] = topic.name
            if is_on(topic.configs, ORDERED_EXPANSION):
                ordered.add(topic.name)
            else:
                ordered.discard(topic.name)
        return self._with_tables(topics, names, ordered)

    def without_topics(self, *removed: str) -> MetadataImage:
        """Remove topics."""
        known = [self.topics[name] for name in removed if name in self.topics]
        if not known:
            return self
        topics, names = dict(self.topics), dict(self.names)
        for topic in known:
            del topics[topic.name]
            names.pop(topic.topic_id, None)
        return self._with_tables(topics, names, self.ordered.difference(removed))

    def _with_tables(
        self, topics: dict[str, TopicImage], names: dict[UUID, str], ordered: Iterable[str]
    ) -> MetadataImage:
        return self._replace(
            version=self.version + 1,
            topics=MappingProxyType(topics),
            names=MappingProxyType(names),
            ordered=frozenset(ordered),
        )

    def with_partition_epoch(self, epoch: int) -> MetadataImage:
        """Note a partition epoch that was allocated, or with which a topic was deleted."""
        if epoch <= self.max_partition_epoch:
            return self
        return self._replace(version=self.version + 1, max_partition_epoch=epoch)

    def with_gates(self, gates: Mapping[str, TopicGates]) -> MetadataImage:
        """Replace the gates."""
        return self._replace(gates=MappingProxyType(dict(gates)))

    def with_broker(self, broker: BrokerImage, *, controller: bool = False) -> MetadataImage:
        """Add or replace a broker."""
        departed = {each: node for each, node in self.departed.items() if each != broker.node_id}
        controller_id = broker.node_id if controller else self.controller_id
        return self._with_nodes({**self.brokers, broker.node_id: broker}, departed, controller_id)

    def with_live_brokers(
        self, brokers: Iterable[BrokerImage], controller_id: int
    ) -> MetadataImage:
        """Replace the live brokers."""
        alive = {broker.node_id: broker for broker in brokers}
        if alive == self.brokers and controller_id == self.controller_id:
            return self
        known = {**self.departed, **self.brokers}
        departed = {each: known[each] for each in known if each not in alive}
        return self._with_nodes(alive, departed, controller_id)

    def without_broker(self, node_id: int) -> MetadataImage:
        """Move a broker to the departed brokers."""
        if node_id not in self.brokers:
            return self
        brokers = {each: node for each, node in self.brokers.items() if each != node_id}
        departed = {**self.departed, node_id: self.brokers[node_id]}
        return self._with_nodes(brokers, departed, self.controller_id)

    def without_departed(self, broker: BrokerImage) -> MetadataImage:
        """Forget a departed broker. The image is unchanged if it has returned meanwhile."""
        if self.departed.get(broker.node_id) is not broker:
            return self
        departed = {each: node for each, node in self.departed.items() if node is not broker}
        return self._with_nodes(dict(self.brokers), departed, self.controller_id)

    def _with_nodes(
        self,
        brokers: dict[int, BrokerImage],
        departed: dict[int, BrokerImage],
        controller_id: int,
    ) -> MetadataImage:
        return self._replace(
            version=self.version + 1,
            controller_id=controller_id,
            brokers=MappingProxyType(brokers),
            departed=MappingProxyType(departed),
        )

    def without(self, hidden: Mapping[str, frozenset[int]]) -> MetadataImage:
        """A view in which topics lack partitions. In an expansion the last partitions are left out;
        in a contraction some are hidden. Each view has a version of its own, which differs from
        those of other views and of the image.
        """
        topics = dict(self.topics)
        for name, missing in hidden.items():
            topic = topics[name]
            last = range(min(missing), len(topic.partitions))
            if topic.retirement is None and missing.issuperset(last):
                topics[name] = topic._replace(partitions=topic.partitions[: min(missing)])
            else:
                topics[name] = topic._replace(hidden=missing)
        rows = sorted((name, sorted(missing)) for name, missing in hidden.items())
        mark = crc32(repr(rows).encode()) & 0x7FFFFFFF
        version = self.version + ((mark or 1) << 32)
        return self._replace(version=version, topics=MappingProxyType(topics))
