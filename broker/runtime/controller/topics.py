"""Creates and deletes topics for the controller. Expansions are in growth.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from kstore.broker.state.controller import events
from kstore.broker.state.controller.state import TopicId
from kstore.broker.state.metadata.image import TopicImage
from kstore.broker.state.metadata.topic_rules import (
    NewTopic,
    TopicError,
    check_configs,
    no_topic,
    plan_topic,
)
from kstore.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kstore.broker.runtime.controller.decisions import Decisions

__all__ = ["ControllerTopics", "answered", "partitions_of"]

T = TypeVar("T")
DELETION_WAIT_S = 10.0
"""How long a deletion waits for a live broker that does not answer."""


class ControllerTopics:
    """The part of one controller that creates and deletes topics."""

    def __init__(self, controller: Decisions) -> None:
        self._controller = controller

    # ---- creation ----

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """Create a topic, and return its image. Raises TopicError."""
        return await self._exclusively(self._create, new, validate_only)

    async def _create(self, new: NewTopic, validate_only: bool) -> TopicImage:
        controller = self._controller
        state = controller.state
        config = controller.config
        configs = check_configs(new.configs)
        assigned = plan_topic(
            state.image,
            new,
            default_partitions=config["num.partitions"],
            default_replicas=config["default.replication.factor"],
            start=state.partition_epoch,
        )
        topic_id = uuid4()
        made = {replicas: events.new_partition(state, replicas) for replicas in set(assigned)}
        partitions = tuple(made[replicas] for replicas in assigned)
        topic = TopicImage(new.name, topic_id, partitions, configs)
        if validate_only:
            return topic
        first_epoch = state.partition_epoch + 1
        topic = await controller.in_store(controller.store.create_topic, topic, first_epoch)
        controller.state = controller.state.with_topics(topic)._replace(
            partition_epoch=first_epoch - 1 + len(partitions)
        )
        controller.channels.send_partitions(partitions_of(topic))
        return topic

    # ---- deletion ----

    async def delete(self, name: str) -> None:
        """Delete a topic. Returns when the live brokers have deleted its logs, or have not answered
        for long. Raises TopicError.
        """
        waited_for = await self._exclusively(self._delete, name)
        if waited_for:
            await asyncio.wait(waited_for, timeout=DELETION_WAIT_S)

    async def _delete(self, name: str) -> list[asyncio.Future[None]]:
        controller = self._controller
        state = controller.state
        topic = state.topics.get(name)
        if topic is None:
            raise no_topic(name)
        if not controller.config["delete.topic.enable"]:
            raise TopicError(
                ErrorCode.TOPIC_DELETION_DISABLED,
                f"'{name}' was not deleted: the controller has delete.topic.enable=false.",
            )
        replicas = {i: frozenset(p.replicas) for i, p in enumerate(topic.partitions)}
        epoch = state.partition_epoch + 1
        await controller.in_store(controller.store.delete_topic, state, topic, replicas, epoch)
        deleted = TopicId(name, topic.topic_id)
        state = controller.state.without_topic(name).with_deletion(deleted, replicas)
        controller.state = state._replace(partition_epoch=epoch)
        controller.channels.send_deletion(deleted, len(topic.partitions))
        for index, brokers in replicas.items():
            controller.channels.send_stop(deleted, index, brokers, delete=True)
        return controller.channels.when_answered()

    # ---- errors ----

    async def _exclusively(self, step: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await answered(self._controller.exclusively(step, *args))


async def answered(work: Awaitable[T]) -> T:
    """The result of ``work``. Its errors become a TopicError."""
    try:
        return await work
    except KafkaError as problem:
        raise TopicError(problem.code, str(problem)) from problem


def partitions_of(topic: TopicImage) -> list[tuple[str, int]]:
    """The (topic, partition) pairs of all partitions of the topic."""
    return [(topic.name, index) for index in range(len(topic.partitions))]
