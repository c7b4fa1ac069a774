"""What the controller knows: brokers, topics, what is to be deleted and what is to grow.

It is what the store says, and changes only after the store has taken a change. Decisions
(controller_events, reassignment_steps) read it and return `PartitionChange`s. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.metadata.image import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

__all__ = [
    "BrokerChanges",
    "ControllerState",
    "Deletion",
    "Expansion",
    "PartitionChange",
    "TopicId",
]


NO_CONTROLLER = -1
"""In the image of the controller itself nobody looks for who it is."""
PIECE = 100
"""Partitions that are dealt with before others have their turn."""


class TopicId(NamedTuple):
    """A topic, and not another of that name."""

    name: str
    topic_id: UUID


class Deletion(NamedTuple):
    """Replicas of one topic that are deleted, but not known to be: partition index to brokers."""

    topic: TopicId
    replicas: Mapping[int, frozenset[int]]


class Expansion(NamedTuple):
    """A topic on its way to more partitions (KIP-253)."""

    topic: TopicId
    added: tuple[tuple[int, ...], ...]
    """The replicas of the partitions that are to be made."""
    prior_leader_epochs: tuple[tuple[int, int], ...]
    """(partition, its leader epoch) from before: the last in which nobody knew the new count."""


class PartitionChange(NamedTuple):
    """A partition's next state. The image's `state_version` is still that of the state it follows;
    `told` says whether its replicas have to hear (else the leader knows, which asked for it).
    """

    topic: str
    partition: int
    image: PartitionImage
    dropped: tuple[int, ...] = ()
    """Brokers whose replicas are to be deleted."""
    told: bool = True


class BrokerChanges(NamedTuple):
    """How the registered brokers differ from what is known. A broker in another life has left and
    joined.
    """

    left: frozenset[int]
    joined: frozenset[int]
    changed: bool
    """Whether anything differs at all, an address for one."""


class ControllerState:
    """A metadata image, and what only the controller knows."""

    def __init__(self) -> None:
        self.image = MetadataImage("")
        """Topics and brokers; a value, as everybody's."""
        self.leaving: dict[int, int] = {}
        """Brokers in a controlled shutdown, with their epochs."""
        self.offline: dict[int, set[tuple[str, int]]] = {}
        """Replicas that a live broker can't open, by broker."""
        self.expansions: dict[str, Expansion] = {}
        self.deletions: dict[TopicId, dict[int, frozenset[int]]] = {}
        self.partition_epoch = 0
        self.allow_unclean: bool = False
        """What holds for topics that have no setting of their own."""

    # ---- questions ----

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """The topics by name."""
        return self.image.topics

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        """The brokers that are alive."""
        return self.image.brokers

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition, or None where the topic or the partition does not exist."""
        return self.image.partition(topic, index)

    def alive(self, topic: str, index: int) -> frozenset[int]:
        """The brokers that could hold this partition: registered, and not unable to open it."""
        brokers = self.brokers.keys()
        unable = {node for node, found in self.offline.items() if (topic, index) in found}
        return frozenset(brokers - unable) if unable else frozenset(brokers)

    def count(self, topic: str) -> int:
        """The number of partitions that producers are to count with: the new one of a topic that is
        growing.
        """
        expansion = self.expansions.get(topic)
        added = 0 if expansion is None else len(expansion.added)
        return len(self.topics[topic].partitions) + added

    def unclean_allowed(self, topic: str) -> bool:
        """Whether a replica that is not in sync may lead the topic's partitions."""
        value = self.topics[topic].configs.get("unclean.leader.election.enable")
        return self.allow_unclean if value is None else value.strip().lower() == "true"

    def partitions(self) -> Iterable[tuple[str, int, PartitionImage]]:
        """Every partition."""
        for name, topic in self.topics.items():
            for index, partition in enumerate(topic.partitions):
                yield name, index, partition

    def pieces(self, topics: Iterable[str]) -> Iterator[tuple[str, range]]:
        """Topics in pieces of so many partitions as are dealt with in one turn of a loop."""
        for name in topics:
            count = len(self.topics[name].partitions) if name in self.topics else 0
            for first in range(0, count, PIECE):
                yield name, range(first, min(first + PIECE, count))

    def compare(self, registered: Mapping[int, BrokerImage]) -> BrokerChanges:
        """What is new among the brokers."""
        same = {
            node
            for node, broker in registered.items()
            if node in self.brokers and self.brokers[node].epoch == broker.epoch
        }
        left = frozenset(self.brokers.keys() - same)
        joined = frozenset(registered.keys() - same)
        return BrokerChanges(left, joined, registered != self.brokers)

    # ---- what has happened ----

    def take_brokers(self, registered: Mapping[int, BrokerImage]) -> None:
        """These are the brokers that are alive. What was known of an earlier life is forgotten."""
        self.image = self.image.with_live_brokers(registered.values(), NO_CONTROLLER)
        for node, epoch in list(self.leaving.items()):
            if node not in registered or registered[node].epoch != epoch:
                del self.leaving[node]

    def forget_offline(self, nodes: Iterable[int]) -> None:
        """Brokers are gone or in another life, in which they may open what they couldn't."""
        for node in nodes:
            self.offline.pop(node, None)

    def apply(self, changes: Sequence[PartitionChange]) -> None:
        """The store has taken the changes, so every state's version is one higher."""
        by_topic: dict[str, list[PartitionChange]] = {}
        for change in changes:
            by_topic.setdefault(change.topic, []).append(change)
        changed: list[TopicImage] = []
        for name, several in by_topic.items():
            topic = self.topics[name]
            partitions = list(topic.partitions)
            for change in several:
                version = change.image.state_version + 1
                partitions[change.partition] = change.image._replace(state_version=version)
                if change.dropped:
                    self.add_deletion(
                        TopicId(name, topic.topic_id), {change.partition: frozenset(change.dropped)}
                    )
            changed.append(topic._replace(partitions=tuple(partitions)))
        self.put_topics(*changed)

    def put_topics(self, *topics: TopicImage) -> None:
        """These topics are new, or are so now."""
        self.image = self.image.with_topics(*topics)

    def remove_topic(self, name: str) -> None:
        """A topic is deleted."""
        self.image = self.image.without_topics(name)

    def add_deletion(self, topic: TopicId, replicas: Mapping[int, frozenset[int]]) -> None:
        """Replicas are to be deleted."""
        known = self.deletions.setdefault(topic, {})
        for index, brokers in replicas.items():
            known[index] = known.get(index, frozenset()) | brokers

    def without_deleted(
        self, node: int, done: Iterable[tuple[TopicId, int]]
    ) -> dict[TopicId, dict[int, frozenset[int]]]:
        """What is left to delete of these topics, after a broker has deleted some replicas."""
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

    def take_deletions(self, left: Mapping[TopicId, dict[int, frozenset[int]]]) -> None:
        """This is what is still to be deleted of these topics."""
        for topic, replicas in left.items():
            if replicas:
                self.deletions[topic] = dict(replicas)
            else:
                self.deletions.pop(topic, None)

    def deletions_of(self, name: str) -> list[Deletion]:
        """What is to be deleted of topics with that name."""
        return [Deletion(topic, r) for topic, r in self.deletions.items() if topic.name == name]
