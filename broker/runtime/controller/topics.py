"""What the controller does to whole topics: make them, let them grow, delete them.

Growth follows KIP-253: the leader epochs of the partitions that are there are bumped, their brokers
are told these and the new count and have to answer, and only then are the new partitions made. A
crash between any two steps leaves a marker in the store, from which the next controller goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from kstore.broker.state.controller.election import NO_LEADER
from kstore.broker.state.controller.state import Expansion, PartitionChange, TopicId
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.broker.state.metadata.topic_rules import (
    NewPartitions,
    NewTopic,
    TopicError,
    check_configs,
    plan_partitions,
    plan_topic,
)
from kstore.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kstore.broker.runtime.controller.decisions import Decisions

__all__ = ["ControllerTopics"]

T = TypeVar("T")
DELETION_WAIT_S = 10.0
"""How long a deletion waits for brokers that are alive and do not answer."""
RESUME_S = 0.5
"""How often an expansion that was interrupted looks whether the store is back."""


class ControllerTopics:
    """The part of one controller that concerns whole topics."""

    def __init__(self, controller: Decisions) -> None:
        self._controller = controller

    # ---- creation ----

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """Make a topic, and return its image; TopicError."""
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
        made = {replicas: self._new_partition(replicas) for replicas in set(assigned)}
        partitions = tuple(made[replicas] for replicas in assigned)
        topic = TopicImage(new.name, topic_id, partitions, configs)
        if validate_only:
            return topic
        first_epoch = state.partition_epoch + 1
        topic = await controller.in_store(controller.store.create_topic, topic, first_epoch)
        controller.state = controller.state.with_topics(topic)._replace(
            partition_epoch=first_epoch - 1 + len(partitions)
        )
        controller.channels.tell_partitions(_partitions(topic))
        return topic

    def _new_partition(self, replicas: tuple[int, ...]) -> PartitionImage:
        """All live replicas are in sync, since there is nothing to copy yet."""
        state = self._controller.state
        alive = tuple(each for each in replicas if each in state.brokers)
        staying = [each for each in alive if each not in state.leaving]
        leader = next(iter(staying or alive), NO_LEADER)
        return PartitionImage(leader, 0, replicas, alive or replicas)

    # ---- growth ----

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Let a topic grow; returns when its new partitions are made. TopicError."""
        await self._exclusively(self._begin_expansion, new, validate_only)
        if not validate_only:
            await self._answered(self.finish_expansion(new.name))

    async def _begin_expansion(self, new: NewPartitions, validate_only: bool) -> None:
        controller = self._controller
        state = controller.state
        if new.name in state.expansions:
            raise TopicError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"'{new.name}' is growing already: try again when that is done.",
            )
        added = plan_partitions(state.image, new, start=state.partition_epoch)
        if validate_only:
            return
        topic = state.topics[new.name]
        priors = tuple((i, p.leader_epoch) for i, p in enumerate(topic.partitions))
        expansion = Expansion(TopicId(topic.name, topic.topic_id), added, priors)
        await controller.in_store(controller.store.begin_expansion, topic, expansion)
        controller.state = controller.state.with_expansion(expansion)

    async def finish_expansion(self, name: str) -> None:
        """Take an expansion that has begun through its other steps. KafkaError where the store is
        away: the expansion is finished once the store is back.
        """
        controller = self._controller
        try:
            await self._finish_expansion(name)
        except KafkaError:
            if controller.active and name in controller.state.expansions:
                controller.spawn(self._finish_when_back, name)
            raise

    async def _finish_when_back(self, name: str) -> None:
        """Leaders know the new count by now and refuse the old one: somebody has to finish."""
        controller = self._controller
        while controller.active:
            await asyncio.sleep(RESUME_S)
            if not controller.coordination.away:
                await self.finish_expansion(name)
                return

    async def _finish_expansion(self, name: str) -> None:
        controller = self._controller
        while True:
            await controller.exclusively(self._bump, name)
            expansion = controller.state.expansions.get(name)
            if expansion is None:
                return
            generation = controller.generation
            waited_for = controller.channels.told(self._holders(name))
            if waited_for:
                await asyncio.wait(waited_for)
            if await controller.exclusively(self._end_expansion, expansion, generation):
                return

    def _holders(self, name: str) -> set[int]:
        topic = self._controller.state.topics[name]
        return {node for partition in topic.partitions for node in partition.replicas}

    async def _bump(self, name: str) -> None:
        """Begin new leader epochs where that has not happened since the expansion began, and let
        all replicas hear the new count.
        """
        state = self._controller.state
        expansion = state.expansions.get(name)
        if expansion is None:
            return
        topic = state.topics[name]
        changes = []
        for index, epoch in expansion.prior_leader_epochs:
            partition = topic.partitions[index]
            if partition.leader_epoch <= epoch:
                bumped = partition._replace(leader_epoch=epoch + 1)
                changes.append(PartitionChange(name, index, bumped))
        await self._controller.commit(changes)
        self._controller.channels.tell_partitions(_partitions(topic))

    async def _end_expansion(self, expansion: Expansion, generation: int) -> bool:
        """Make the new partitions; False if what was waited for has to be told anew, since the
        state was read anew.
        """
        controller = self._controller
        state = controller.state
        name = expansion.topic.name
        if state.expansions.get(name) != expansion:
            return True
        if controller.generation != generation:
            return False
        topic = state.topics[name]
        first = len(topic.partitions)
        new = tuple(map(self._new_partition, expansion.added))
        grown = topic._replace(partitions=topic.partitions + new)
        first_epoch = state.partition_epoch + 1
        grown = await controller.in_store(
            controller.store.end_expansion, grown, expansion, first_epoch
        )
        state = controller.state.with_topics(grown).without_expansion(name)
        controller.state = state._replace(partition_epoch=first_epoch - 1 + len(new))
        controller.channels.tell_partitions(
            (name, index) for index in range(first, len(grown.partitions))
        )
        return True

    # ---- deletion ----

    async def delete(self, name: str) -> None:
        """Delete a topic; returns when the live brokers have deleted its logs, or when they don't
        answer for long. TopicError.
        """
        waited_for = await self._exclusively(self._delete, name)
        if waited_for:
            await asyncio.wait(waited_for, timeout=DELETION_WAIT_S)

    async def _delete(self, name: str) -> list[asyncio.Future[None]]:
        controller = self._controller
        state = controller.state
        topic = state.topics.get(name)
        if topic is None:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        if not controller.config["delete.topic.enable"]:
            raise TopicError(
                ErrorCode.TOPIC_DELETION_DISABLED,
                f"'{name}' is kept: the controller has delete.topic.enable=false.",
            )
        replicas = {i: frozenset(p.replicas) for i, p in enumerate(topic.partitions)}
        epoch = state.partition_epoch + 1
        await controller.in_store(controller.store.delete_topic, state, topic, replicas, epoch)
        deleted = TopicId(name, topic.topic_id)
        state = controller.state.without_topic(name).with_deletion(deleted, replicas)
        controller.state = state._replace(partition_epoch=epoch)
        controller.channels.tell_deleted(deleted, len(topic.partitions))
        for index, brokers in replicas.items():
            controller.channels.tell_stop(deleted, index, brokers, delete=True)
        return controller.channels.told()

    # ---- errors ----

    async def _exclusively(self, step: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await self._answered(self._controller.exclusively(step, *args))

    async def _answered(self, work: Awaitable[T]) -> T:
        """The work's result, or its error as topics' askers know it."""
        try:
            return await work
        except KafkaError as problem:
            raise TopicError(problem.code, str(problem)) from problem


def _partitions(topic: TopicImage) -> list[tuple[str, int]]:
    return [(topic.name, index) for index in range(len(topic.partitions))]
