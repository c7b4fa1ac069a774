"""Topics in a cluster. The controller changes them; this broker sends requests to it.

A request is complete once this broker's own image has the change, so that the client can continue
with this broker. The settings of topics are in the store, which all brokers watch
(config_watch.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kstore.broker.coordination.config_nodes import read_topic_configs
from kstore.broker.runtime.peers.to_controller import ask_controller
from kstore.broker.runtime.slices import Slices
from kstore.broker.runtime.topics.topics import Topics
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.metadata.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.controller.controller import Controller
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.metadata.image_updates import ImageUpdates
    from kstore.broker.runtime.node import Node

__all__ = ["ClusterTopics"]

TIMEOUT_S = 15.0
"""How long the controller may take. After that the response is REQUEST_TIMED_OUT."""
EXPANSION_TIMEOUT = "kstore.expansion.timeout.ms"
MARGIN_S = 5.0
"""How long the result of an expansion may take to arrive after the expansion has ended."""
SHOWN_S = 10.0
"""How long this broker waits until its image has what the controller has changed."""
ALL_KNOW_S, PER_PARTITION_S = 1.0, 0.005
"""How long the controller waits until the other brokers know a new topic. One of them may hang."""


class ClusterTopics(Topics):
    """As Topics, for a cluster."""

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        replicas: LogManager,
        membership: Membership,
        images: ImageUpdates,
    ) -> None:
        super().__init__(node, store, metadata, replicas, _opens_no_logs)
        self._membership = membership
        self._images = images

    def load(self) -> None:
        """Does nothing: the controller decides which logs to open."""

    async def reload_configs(self, names: Collection[str] | None) -> None:
        """Read the settings of these topics again (None: of all topics), and apply changes."""
        async with self._one_at_a_time:
            if names is None:
                names = list(self._image.topics)
            read = await self._in_store(
                lambda: {name: read_topic_configs(self._store, name) for name in names}
            )
            slices = Slices()
            for name, configs in read.items():
                topic = self._image.topics.get(name)
                if topic is None:
                    self._images.forget_configs()
                elif configs != topic.configs:
                    self._publish(topic._replace(configs=configs))
                    self._configure(topic, configs)
                await slices.breathe()

    @property
    def _controller(self) -> Controller | None:
        """The controller, if it is this broker."""
        return self._membership.controller

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """Let the controller create a topic, and return its image. Raises TopicError."""
        controller = self._controller
        if controller is None:
            made = await self._ask_to_create(new, validate_only=validate_only)
        else:
            made = await _result(controller.create_topic(new, validate_only=validate_only))
        if validate_only:
            return made
        await self._let_all_know(controller, len(made.partitions))
        await self._wait_for(new.name, len(made.partitions))
        return self._image.topics.get(new.name, made)

    async def ensure(self, new: NewTopic) -> TopicImage:
        """The topic of that name, created if missing; TopicError if that fails."""
        try:
            return self._image.topics.get(new.name) or await self.create(new)
        except TopicError as problem:
            if problem.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        # Another broker was faster. The image of this broker may not have the topic yet.
        await self._wait_for(new.name, 1)
        known = self._image.topics.get(new.name)
        if known is None:
            why = f"the topic '{new.name}' exists, but this broker does not know it yet"
            raise TopicError(ErrorCode.REQUEST_TIMED_OUT, why)
        return known

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Let the controller expand or contract a topic. Raises TopicError."""
        controller = self._controller
        if controller is None:
            await self._ask_to_grow(new, validate_only=validate_only)
        else:
            await _result(controller.add_partitions(new, validate_only=validate_only))
        if not validate_only:
            await self._let_all_know(controller, new.total_count)
            await self._wait_for(new.name, new.total_count)

    async def delete(self, name: str) -> None:
        """Let the controller delete a topic. Raises TopicError."""
        known = self._known(name)
        if not self._config["delete.topic.enable"]:
            raise TopicError(
                ErrorCode.TOPIC_DELETION_DISABLED,
                f"'{name}' was not deleted: this broker has delete.topic.enable=false.",
            )
        controller = self._controller
        if controller is None:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name)], timeout_ms=int(TIMEOUT_S * 1000)
            )
            answer = await self._ask(request)
            _refuse(answer.responses[0])
        else:
            await _result(controller.delete_topic(name))
        await self._images.wait_until(lambda: not self._shows(known), SHOWN_S)

    def _shows(self, topic: TopicImage) -> bool:
        known = self._image.topics.get(topic.name)
        return known is not None and known.topic_id == topic.topic_id

    # ---- asking the controller ----

    async def _ask(self, request: Any, timeout_s: float = TIMEOUT_S) -> Any:
        asking = ask_controller(self._membership, self._store, request, timeout_s=timeout_s)
        return await _result(asking)

    async def _ask_to_create(self, new: NewTopic, *, validate_only: bool) -> TopicImage:
        topic = CreatableTopic(
            name=new.name,
            num_partitions=new.num_partitions,
            replication_factor=new.replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in new.assignments.items()
            ],
            configs=[
                CreatableTopicConfig(name=name, value=value) for name, value in new.configs.items()
            ],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=int(TIMEOUT_S * 1000), validate_only=validate_only
        )
        answer = await self._ask(request)
        [made] = answer.topics
        _refuse(made)
        partitions = (PartitionImage(-1, -1, (), ()),) * made.num_partitions
        return TopicImage(new.name, uuid4() if validate_only else made.topic_id, partitions, {})

    async def _ask_to_grow(self, new: NewPartitions, *, validate_only: bool) -> None:
        assignments = None
        if new.assignments is not None:
            assignments = [
                CreatePartitionsAssignment(broker_ids=list(replicas))
                for replicas in new.assignments
            ]
        topic = CreatePartitionsTopic(
            name=new.name,
            count=new.total_count,
            assignments=assignments,
            may_shrink=new.may_shrink,
        )
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=int(TIMEOUT_S * 1000), validate_only=validate_only
        )
        # The controller reports the result, and may take this long.
        timeout_s = max(TIMEOUT_S, self._config[EXPANSION_TIMEOUT] / 1000 + MARGIN_S)
        answer = await self._ask(request, timeout_s)
        _refuse(answer.results[0])

    async def _let_all_know(self, controller: Controller | None, partitions: int) -> None:
        """Wait a moment until the other brokers know a new topic, since a client may continue with
        any of them.
        """
        waiting = [] if controller is None else controller.channels.when_answered()
        if waiting:
            await asyncio.wait(waiting, timeout=ALL_KNOW_S + PER_PARTITION_S * partitions)

    async def _wait_for(self, name: str, count: int) -> None:
        """Wait until this broker knows this many partitions of a topic."""

        def is_there() -> bool:
            known = self._image.topics.get(name)
            return (
                known is not None
                and len(known.partitions) >= count
                and (known.retirement is None or known.producer_count <= count)
            )

        await self._images.wait_until(is_there, SHOWN_S)


def _opens_no_logs(count: int) -> None:
    """Allow any number: each broker that the controller chooses checks whether it can open the
    logs.
    """


async def _result(answer: Any) -> Any:
    """The controller's response. Any Kafka error becomes a TopicError."""
    try:
        return await answer
    except KafkaError as problem:
        code = problem.code if problem.code > 0 else ErrorCode.REQUEST_TIMED_OUT
        raise TopicError(code, str(problem)) from problem


def _refuse(row: Any) -> None:
    """Raise TopicError if the controller has refused."""
    if row.error_code != ErrorCode.NONE:
        raise TopicError(row.error_code, row.error_message or "The controller has refused it.")
