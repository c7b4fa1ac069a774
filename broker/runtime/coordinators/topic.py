"""A coordinator's topic as one broker sees it: which of its partitions it serves, whom a client is
sent to, and how the topic is made. A broker that is alone serves all of them; in a cluster each
broker serves those that it leads.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

from kstore.broker.state.metadata.topic_rules import NewTopic, TopicError
from kstore.config.broker import SourceKind
from kstore.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.topics.topics import Topics
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = ["AloneTopic", "ClusterTopic", "CoordinatorTopic"]

P = TypeVar("P")
LOGGER = logging.getLogger(__name__)
DEFAULT_REPLICAS = 3
"""In a cluster, where nothing is set; fewer while there are fewer brokers."""


class CoordinatorTopic(ABC):
    """The topic of one coordinator."""

    replicated: ClassVar[bool]
    """Whether what is appended counts only once followers have it."""
    made_by_requests: ClassVar[bool]
    """Whether any request makes the topic, and not only who looks for the coordinator."""

    def __init__(self, name: str, node: Node, metadata: MetadataCache, topics: Topics) -> None:
        self.name = name
        self.node = node
        self.metadata = metadata
        self._topics = topics

    @property
    def image(self) -> MetadataImage:
        """What this broker knows of the cluster now."""
        return self.metadata.image

    @abstractmethod
    def may_answer(self) -> bool:
        """Whether this broker may answer by what it alone knows."""

    @abstractmethod
    def led(self) -> Iterable[int]:
        """The partitions that this broker serves when it begins."""

    @abstractmethod
    def count(self, served: int) -> int:
        """How many partitions the topic has, of which so many are served here; 0 while it is
        missing.
        """

    @abstractmethod
    def leader(self, index: int) -> int:
        """The broker that serves a partition; KafkaError while there is none, or no topic."""

    @abstractmethod
    def is_missing(self, served: int) -> bool:
        """Whether the topic has to be made, or its partitions served, before one can be asked
        for.
        """

    @abstractmethod
    def awaited(self, served: Collection[P], asked: P | None) -> Collection[P]:
        """The partitions that who looks for the coordinator waits for, of those served here."""

    @abstractmethod
    def is_default(self, setting: str) -> bool:
        """Whether a setting was left to the brokers of a cluster."""

    async def make(self, new: NewTopic) -> None:
        """Make the topic if it is missing; KafkaError."""
        try:
            await self._topics.ensure(new)
        except TopicError as error:
            LOGGER.error("%s can't be created: %s", self.name, error)
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    def as_configured(self, count: str, factor: str, configs: Mapping[str, str]) -> NewTopic:
        """The topic with as many partitions and replicas as the settings of these names say.

        Kafka wants all replicas from the beginning, and so it is here, where they are set.
        """
        config = self.node.config
        replicas: int = config[factor]
        if self.is_default(factor):
            replicas = min(DEFAULT_REPLICAS, len(self.image.brokers))
        return NewTopic(self.name, config[count], replicas, configs=configs)


class AloneTopic(CoordinatorTopic):
    """The topic of a broker that is alone."""

    replicated = False
    made_by_requests = True

    def may_answer(self) -> bool:
        """Nobody else can."""
        return True

    def led(self) -> Iterable[int]:
        """All there are."""
        image = self.image.topics.get(self.name)
        return () if image is None else range(len(image.partitions))

    def count(self, served: int) -> int:
        """Those that are served are all there are."""
        return served

    def leader(self, index: int) -> int:
        """This broker."""
        return self.node.node_id

    def is_missing(self, served: int) -> bool:
        """Also where it is there, but was not when the coordinator began."""
        return not served or self.name not in self.image.topics

    def awaited(self, served: Collection[P], asked: P | None) -> Collection[P]:
        """All: none is served by anybody else."""
        return served

    def is_default(self, setting: str) -> bool:
        """The settings are those of this broker."""
        return False


class ClusterTopic(CoordinatorTopic):
    """The topic of a broker of a cluster."""

    replicated = True
    made_by_requests = False

    def __init__(
        self,
        name: str,
        node: Node,
        metadata: MetadataCache,
        topics: Topics,
        table: PartitionTable,
        may_answer_alone: Callable[[], bool],
    ) -> None:
        """``may_answer_alone``: nobody can have been elected in this broker's place."""
        super().__init__(name, node, metadata, topics)
        self._table = table
        self._may_answer_alone = may_answer_alone

    def may_answer(self) -> bool:
        """Not where another broker may serve the partitions by now."""
        return self._may_answer_alone()

    def led(self) -> Iterable[int]:
        """Those that this broker leads."""
        entry = self._table.topic(self.name.encode())
        partitions = () if entry is None else entry.partitions
        return [item.index for item in partitions if item is not None and item.online]

    def count(self, served: int) -> int:
        """Those of all brokers."""
        image = self.image.topics.get(self.name)
        return 0 if image is None else len(image.partitions)

    def leader(self, index: int) -> int:
        """Whoever leads the partition."""
        image = self.image.partition(self.name, index)
        if image is None or image.leader not in self.image.brokers:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return image.leader

    def is_missing(self, served: int) -> bool:
        """Other brokers may serve all its partitions."""
        return self.name not in self.image.topics

    def awaited(self, served: Collection[P], asked: P | None) -> Collection[P]:
        """The one that is asked for, if it is served here."""
        return [] if asked is None else [asked]

    def is_default(self, setting: str) -> bool:
        """Whether nobody has set it."""
        return self.node.config.source(setting).kind == SourceKind.DEFAULT
