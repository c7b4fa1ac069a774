"""A coordinator's topic on one broker: which partitions the broker serves, which broker clients
should use, and how the topic is created. A single broker serves all partitions. In a cluster each
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

__all__ = ["ClusterTopic", "CoordinatorTopic", "StandaloneTopic"]

P = TypeVar("P")
LOGGER = logging.getLogger(__name__)
DEFAULT_REPLICAS = 3
"""The default in a cluster; fewer while there are fewer brokers."""


class CoordinatorTopic(ABC):
    """The topic of one coordinator."""

    replicated: ClassVar[bool]
    """Whether records are committed only once followers have them."""
    made_by_requests: ClassVar[bool]
    """Whether any request creates the topic, not only FindCoordinator."""

    def __init__(self, name: str, node: Node, metadata: MetadataCache, topics: Topics) -> None:
        self.name = name
        self.node = node
        self.metadata = metadata
        self._topics = topics

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""
        return self.metadata.image

    @abstractmethod
    def may_answer(self) -> bool:
        """Whether this broker may answer without asking others."""

    @abstractmethod
    def led(self) -> Iterable[int]:
        """The partitions that this broker serves at its start."""

    @abstractmethod
    def count(self, served: int) -> int:
        """How many partitions the topic has, given how many are served here; 0 while it does not
        exist.
        """

    @abstractmethod
    def leader(self, index: int) -> int:
        """The broker that serves a partition. Raises KafkaError while there is none, or no
        topic.
        """

    @abstractmethod
    def is_missing(self, served: int) -> bool:
        """Whether the topic must be created, or its partitions loaded, before a coordinator can be
        found.
        """

    @abstractmethod
    def awaited(self, served: Collection[P], requested: P | None) -> Collection[P]:
        """The partitions, of those that this broker serves, that FindCoordinator waits for."""

    @abstractmethod
    def is_default(self, setting: str) -> bool:
        """Whether no broker of the cluster has changed a setting from its default."""

    async def make(self, new: NewTopic) -> None:
        """Create the topic if it is missing. Raises KafkaError."""
        try:
            await self._topics.ensure(new)
        except TopicError as error:
            LOGGER.error("%s can't be created: %s", self.name, error)
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error

    def as_configured(self, count: str, factor: str, configs: Mapping[str, str]) -> NewTopic:
        """The topic, with the numbers of partitions and replicas from the settings of these names.

        As in Kafka, if the number of replicas is configured, as many brokers must be available.
        """
        config = self.node.config
        replicas: int = config[factor]
        if self.is_default(factor):
            replicas = min(DEFAULT_REPLICAS, len(self.image.brokers))
        return NewTopic(self.name, config[count], replicas, configs=configs)


class StandaloneTopic(CoordinatorTopic):
    """The topic of a single broker."""

    replicated = False
    made_by_requests = True

    def may_answer(self) -> bool:
        """Always: there is no other broker."""
        return True

    def led(self) -> Iterable[int]:
        """All partitions."""
        image = self.image.topics.get(self.name)
        return () if image is None else range(len(image.partitions))

    def count(self, served: int) -> int:
        """The served partitions, which are all."""
        return served

    def leader(self, index: int) -> int:
        """This broker."""
        return self.node.node_id

    def is_missing(self, served: int) -> bool:
        """Also True if the topic was created after the coordinator has started."""
        return not served or self.name not in self.image.topics

    def awaited(self, served: Collection[P], requested: P | None) -> Collection[P]:
        """All: no other broker serves any."""
        return served

    def is_default(self, setting: str) -> bool:
        """Always False: the settings of a single broker apply as they are."""
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
        """``may_answer_alone`` returns whether no other broker can have been elected in the
        meantime.
        """
        super().__init__(name, node, metadata, topics)
        self._table = table
        self._may_answer_alone = may_answer_alone

    def may_answer(self) -> bool:
        """False if another broker may serve the partitions by now."""
        return self._may_answer_alone()

    def led(self) -> Iterable[int]:
        """The partitions that this broker leads."""
        entry = self._table.topic(self.name.encode())
        partitions = () if entry is None else entry.partitions
        return [item.index for item in partitions if item is not None and item.online]

    def count(self, served: int) -> int:
        """The partitions of all brokers."""
        image = self.image.topics.get(self.name)
        return 0 if image is None else len(image.partitions)

    def leader(self, index: int) -> int:
        """The leader of the partition."""
        image = self.image.partition(self.name, index)
        if image is None or image.leader not in self.image.brokers:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return image.leader

    def is_missing(self, served: int) -> bool:
        """Whether the topic does not exist. Other brokers may serve all of its partitions."""
        return self.name not in self.image.topics

    def awaited(self, served: Collection[P], requested: P | None) -> Collection[P]:
        """The requested partition, if this broker serves it."""
        return [] if requested is None else [requested]

    def is_default(self, setting: str) -> bool:
        """Whether the setting is not configured."""
        return self.node.config.source(setting).kind == SourceKind.DEFAULT
