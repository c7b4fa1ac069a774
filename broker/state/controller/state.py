"""The controller's state: brokers, topics, and unfinished deletions, expansions and contractions.

It is an immutable value with the contents of the store. The controller replaces it once the store
has accepted a change. Decisions (events, reassignment_steps) read it and return `PartitionChange`s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.controller.eligible import Rules
from kstore.broker.state.metadata.image import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kstore.broker.state.metadata.retirement import Retirement

__all__ = [
    "BrokerChanges",
    "Contraction",
    "ControllerState",
    "Deletion",
    "Expansion",
    "PartitionChange",
    "TopicId",
    "deletion_rows",
]


NO_CONTROLLER = -1
"""The controller's id in its own image, which does not need it."""
NOT_KNOWN = -1
PIECE = 100
"""The number of partitions that are processed before other work runs."""


class TopicId(NamedTuple):
    """A topic. The id distinguishes it from other topics of the same name."""

    name: str
    topic_id: UUID


class Deletion(NamedTuple):
    """Replicas of one topic whose deletion is not confirmed: partition index to brokers."""

    topic: TopicId
    replicas: Mapping[int, frozenset[int]]


class Expansion(NamedTuple):
    """An expansion of a topic (KIP-253)."""

    topic: TopicId
    added: tuple[tuple[int, ...], ...]
    """The replicas of the partitions that will be created."""
    prior_leader_epochs: tuple[tuple[int, int], ...]
    """(partition, its leader epoch): the last epochs in which no broker knew the new count."""
    begun_ms: int = NOT_KNOWN
    """When it was prepared, by the clock of the controller at that time. NOT_KNOWN if it was not
    recorded.
    """


class Contraction(NamedTuple):
    """A contraction of a topic: it is prepared, then decided. After that, the retired partitions
    remain until their records are deleted.
    """

    topic: TopicId
    first: int
    """The first partition that retires. All later ones retire, too."""
    prior_leader_epochs: tuple[tuple[int, int], ...]
    """(partition, its leader epoch) of all partitions: the last epochs with the old count."""
    begun_ms: int = NOT_KNOWN
    """When it was prepared, by the clock of the controller at that time."""
    holds: bool = False
    """Whether it is decided. Then it cannot be rolled back."""

    @property
    def added(self) -> tuple[tuple[int, ...], ...]:
        """Empty: no partitions are created (as in Expansion)."""
        return ()

    def retirement_of(self, topic: TopicImage) -> Retirement:
        """The retirement as brokers receive it."""
        epoch = dict(self.prior_leader_epochs)[self.first]
        life = topic.partitions[self.first].partition_epoch
        return Retirement(self.first, epoch, life, self.holds)


class PartitionChange(NamedTuple):
    """A partition's next state. The image's `state_version` is still that of the state before.
    `notify_replicas`: not only the leader, which has proposed the change, must be notified.
    """

    topic: str
    partition: int
    image: PartitionImage
    dropped: tuple[int, ...] = ()
    """Brokers whose replicas must be deleted."""
    notify_replicas: bool = True


class BrokerChanges(NamedTuple):
    """How the registered brokers differ from the known ones. A broker that has restarted is in both
    ``left`` and ``joined``.
    """

    left: frozenset[int]
    joined: frozenset[int]
    changed: bool
    """Whether anything differs, such as an address."""


class ControllerState(NamedTuple):
    """A metadata image, and data that only the controller has, as an immutable value. Its `with_`
    and `without_` methods return a new one.
    """

    image: MetadataImage = MetadataImage("")
    """Topics and brokers."""
    leaving: Mapping[int, int] = MappingProxyType({})
    """Brokers in a controlled shutdown, with their epochs."""
    offline: Mapping[int, frozenset[tuple[str, int]]] = MappingProxyType({})
    """Replicas that a live broker cannot open, by broker."""
    expansions: Mapping[str, Expansion] = MappingProxyType({})
    contractions: Mapping[str, Contraction] = MappingProxyType({})
    deletions: Mapping[TopicId, Mapping[int, frozenset[int]]] = MappingProxyType({})
    partition_epoch: int = 0
    allow_unclean: bool = False
    min_isr: int = 1
    """min.insync.replicas of topics that do not set it."""
    setting_writes: Mapping[str, int] = MappingProxyType({})
    """How often the settings of each topic were written in the store, and under "" those for all
    brokers. A number that was not read yet is missing.
    """
    elr_level: int = 0
    """The finalized level of eligible.leader.replicas.version."""

    # ---- questions ----

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """The topics by name."""
        return self.image.topics

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        """The live brokers."""
        return self.image.brokers

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """A partition, or None if the topic or the partition does not exist."""
        return self.image.partition(topic, index)

    def alive(self, topic: str, index: int) -> frozenset[int]:
        """The brokers that can serve this partition: they are registered, and can open it."""
        brokers = self.brokers.keys()
        unable = {node for node, found in self.offline.items() if (topic, index) in found}
        return frozenset(brokers - unable) if unable else frozenset(brokers)

    def count(self, topic: str) -> int:
        """The number of partitions that producers must know: the new number during an expansion,
        and after a contraction is decided.
        """
        contraction = self.contractions.get(topic)
        if contraction is not None and contraction.holds:
            return contraction.first
        expansion = self.expansions.get(topic)
        added = 0 if expansion is None else len(expansion.added)
        return len(self.topics[topic].partitions) + added

    def retirement(self, topic: str) -> Retirement | None:
        """The partitions of a topic that retire."""
        contraction = self.contractions.get(topic)
        return None if contraction is None else contraction.retirement_of(self.topics[topic])

    def is_decided(self, expansion: Expansion) -> bool:
        """Whether the new partitions exist already. Then the expansion cannot be rolled back."""
        topic = self.topics[expansion.topic.name]
        return len(topic.partitions) != len(expansion.prior_leader_epochs)

    def unclean_allowed(self, topic: str) -> bool:
        """Whether a replica that is not in sync may lead the topic's partitions."""
        value = self.topics[topic].configs.get("unclean.leader.election.enable")
        return self.allow_unclean if value is None else value.strip().lower() == "true"

    @property
    def keeps_elr(self) -> bool:
        """Whether eligible leader replicas are in use: not while there is a live broker that does
        not support them, since it could become the controller.
        """
        return self.elr_level > 0 and all(each.keeps_elr for each in self.brokers.values())

    def admitted(self, registered: Mapping[int, BrokerImage]) -> dict[int, BrokerImage]:
        """The registered brokers that take part in the cluster. During a contraction, brokers that
        do not support contractions do not: as leaders they would accept records in retiring
        partitions.
        """
        if not self.contractions:
            return dict(registered)
        return {node: each for node, each in registered.items() if each.knows_contractions}

    def eligible_rules(self, topic: str) -> Rules | None:
        """The rules for the topic's eligible leader replicas. None if they are not in use."""
        if not self.keeps_elr:
            return None
        value = self.topics[topic].configs.get("min.insync.replicas")
        writes = self.setting_writes.get("", 0) + self.setting_writes.get(topic, 0)
        return Rules(self.min_isr if value is None else int(value), writes)

    def partitions(self) -> Iterable[tuple[str, int, PartitionImage]]:
        """All partitions."""
        for name, topic in self.topics.items():
            for index, partition in enumerate(topic.partitions):
                yield name, index, partition

    def pieces(self, topics: Iterable[str]) -> Iterator[tuple[str, range]]:
        """Topics in pieces of as many partitions as one turn of the loop can process."""
        for name in topics:
            count = len(self.topics[name].partitions) if name in self.topics else 0
            for first in range(0, count, PIECE):
                yield name, range(first, min(first + PIECE, count))

    def compare(self, registered: Mapping[int, BrokerImage]) -> BrokerChanges:
        """Compare registered brokers with the known ones."""
        same = {
            node
            for node, broker in registered.items()
            if node in self.brokers and self.brokers[node].epoch == broker.epoch
        }
        left = frozenset(self.brokers.keys() - same)
        joined = frozenset(registered.keys() - same)
        return BrokerChanges(left, joined, registered != self.brokers)

    # ---- changes ----

    def with_brokers(self, registered: Mapping[int, BrokerImage]) -> ControllerState:
        """Set the live brokers, and drop the data of their earlier runs."""
        leaving = {
            node: epoch
            for node, epoch in self.leaving.items()
            if node in registered and registered[node].epoch == epoch
        }
        image = self.image.with_live_brokers(registered.values(), NO_CONTROLLER)
        return self._replace(image=image, leaving=MappingProxyType(leaving))

    def with_leaving(self, node: int, epoch: int) -> ControllerState:
        """Note that a broker is in a controlled shutdown."""
        return self._replace(leaving=MappingProxyType({**self.leaving, node: epoch}))

    def with_offline(self, node: int, failed: Iterable[tuple[str, int]]) -> ControllerState:
        """Note that a broker cannot open these replicas."""
        unable = self.offline.get(node, frozenset()).union(failed)
        return self._replace(offline=MappingProxyType({**self.offline, node: unable}))

    def without_offline(self, nodes: Collection[int]) -> ControllerState:
        """Drop the offline replicas of brokers that have left or restarted, since they may be able
        to open them now.
        """
        offline = {node: found for node, found in self.offline.items() if node not in nodes}
        return self._replace(offline=MappingProxyType(offline))

    def with_changes(self, changes: Sequence[PartitionChange]) -> ControllerState:
        """Apply changes that the store has accepted. The version of each state increases by one."""
        by_topic: dict[str, list[PartitionChange]] = {}
        for change in changes:
            by_topic.setdefault(change.topic, []).append(change)
        changed: list[TopicImage] = []
        dropped: dict[TopicId, dict[int, frozenset[int]]] = {}
        for name, several in by_topic.items():
            topic = self.topics[name]
            partitions = list(topic.partitions)
            for change in several:
                version = change.image.state_version + 1
                partitions[change.partition] = change.image._replace(state_version=version)
                if change.dropped:
                    rows = dropped.setdefault(TopicId(name, topic.topic_id), {})
                    rows[change.partition] = frozenset(change.dropped)
            changed.append(topic._replace(partitions=tuple(partitions)))
        state = self.with_topics(*changed)
        for topic_id, replicas in dropped.items():
            state = state.with_deletion(topic_id, replicas)
        return state

    def with_topics(self, *topics: TopicImage) -> ControllerState:
        """Add or replace topics."""
        return self._replace(image=self.image.with_topics(*topics))

    def with_writes(self, writes: Mapping[str, int]) -> ControllerState:
        """Set how often these settings were written."""
        return self._replace(setting_writes=MappingProxyType({**self.setting_writes, **writes}))

    def without_topic(self, name: str) -> ControllerState:
        """Remove a deleted topic, and its expansion."""
        state = self.without_expansion(name).without_contraction(name)
        writes = {each: count for each, count in self.setting_writes.items() if each != name}
        return state._replace(
            image=state.image.without_topics(name), setting_writes=MappingProxyType(writes)
        )

    def with_expansion(self, expansion: Expansion) -> ControllerState:
        """Add an expansion."""
        expansions = {**self.expansions, expansion.topic.name: expansion}
        return self._replace(expansions=MappingProxyType(expansions))

    def without_expansion(self, name: str) -> ControllerState:
        """Remove an expansion."""
        expansions = {each: found for each, found in self.expansions.items() if each != name}
        return self._replace(expansions=MappingProxyType(expansions))

    def with_contraction(self, contraction: Contraction) -> ControllerState:
        """Add a contraction, or note that it is decided."""
        contractions = {**self.contractions, contraction.topic.name: contraction}
        return self._replace(contractions=MappingProxyType(contractions))

    def without_contraction(self, name: str) -> ControllerState:
        """Remove a contraction."""
        left = {each: found for each, found in self.contractions.items() if each != name}
        return self._replace(contractions=MappingProxyType(left))

    def with_deletion(
        self, topic: TopicId, replicas: Mapping[int, frozenset[int]]
    ) -> ControllerState:
        """Add replicas to delete."""
        known = dict(self.deletions.get(topic, {}))
        for index, brokers in replicas.items():
            known[index] = known.get(index, frozenset()) | brokers
        return self._replace(deletions=MappingProxyType({**self.deletions, topic: known}))

    def without_deleted(
        self, node: int, done: Iterable[tuple[TopicId, int]]
    ) -> dict[TopicId, dict[int, frozenset[int]]]:
        """Remove replicas of these topics that a broker has deleted."""
        left: dict[TopicId, dict[int, frozenset[int]]] = {}
        for topic, index in done:
            if topic not in self.deletions:
                continue
            of_topic = left.setdefault(topic, dict(self.deletions[topic]))
            remaining = of_topic.get(index, frozenset()) - {node}
            if remaining:
                of_topic[index] = remaining
            else:
                of_topic.pop(index, None)
        return left

    def with_deletions_left(
        self, left: Mapping[TopicId, Mapping[int, frozenset[int]]]
    ) -> ControllerState:
        """Replace the remaining deletions of these topics."""
        deletions = {topic: rows for topic, rows in self.deletions.items() if topic not in left}
        deletions |= {topic: dict(replicas) for topic, replicas in left.items() if replicas}
        return self._replace(deletions=MappingProxyType(deletions))

    def deletions_of(self, name: str) -> list[Deletion]:
        """The deletions of topics with this name."""
        return [Deletion(topic, r) for topic, r in self.deletions.items() if topic.name == name]


def deletion_rows(
    state: ControllerState, topic: TopicId, replicas: Mapping[int, frozenset[int]]
) -> dict[TopicId, Mapping[int, frozenset[int]]]:
    """The deletions of topics with this name, with these replicas added."""
    rows: dict[TopicId, Mapping[int, frozenset[int]]] = {
        each.topic: each.replicas for each in state.deletions_of(topic.name)
    }
    known = rows.get(topic, {})
    rows[topic] = {
        index: known.get(index, frozenset()) | replicas.get(index, frozenset())
        for index in known.keys() | replicas.keys()
    }
    return rows
