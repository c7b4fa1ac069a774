"""Initializes and deletes the state of share-partitions at the share coordinator (KIP-932). The
state is initialized before members get the partitions, and deleted with the group or at an
administrator's request. broker.state decides what a group stores about it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from kstore.broker.state.groups.share.group import ShareGroup
from kstore.broker.state.groups.timers import (
    ShareStatesDeleted,
    ShareStatesDeleting,
    ShareStatesInitialized,
)
from kstore.broker.state.shares.persisted import NO_EPOCH, NO_OFFSET, SharePartitionKey
from kstore.errors import KafkaError

if TYPE_CHECKING:
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.shares.persister import Persister
    from kstore.broker.state.shares.persisted import ShareSummary

__all__ = ["Outcome", "ShareGroupStates", "TopicIdPartition"]

LOGGER = logging.getLogger(__name__)

TopicIdPartition = tuple[UUID, int]
Outcome = Mapping[TopicIdPartition, KafkaError | None]
"""Partition to its error."""


class ShareGroupStates:
    """Sends requests to the share coordinator and passes the results to the groups of this
    broker.
    """

    def __init__(self, groups: Lazy[GroupCoordinator], persister: Callable[[], Persister]) -> None:
        self._groups = groups
        self._persister = persister
        self._busy: set[str] = set()
        """The groups whose partitions are being initialized."""

    def group(self, group_id: str) -> ShareGroup | None:
        """The share group, if this broker is its coordinator now."""
        try:
            group = self._groups().find(group_id).shard.groups.get(group_id)
        except KafkaError:
            return None
        return group if isinstance(group, ShareGroup) else None

    def initialize_soon(self, group_id: str) -> None:
        """Initialize the partitions that a group waits for, in the background. Each heartbeat calls
        this, so nothing is lost if another broker becomes the coordinator.
        """
        group = self.group(group_id)
        if group is not None and group.states.initializing and group_id not in self._busy:
            self._busy.add(group_id)
            self._groups().spawn(self._initialize_waiting(group_id, group))

    async def _initialize_waiting(self, group_id: str, group: ShareGroup) -> None:
        waiting = {
            (topic_id, partition): NO_OFFSET
            for topic_id, topic in group.states.initializing.items()
            for partition in topic.partitions
        }
        try:
            outcome = await self.initialize(group_id, group.epoch, waiting)
        except KafkaError as error:
            LOGGER.warning("share group %s: partitions not initialized yet: %s", group_id, error)
            return
        finally:
            self._busy.discard(group_id)
        for (topic_id, partition), problem in outcome.items():
            if problem is not None:
                what = f"partition {partition} of topic {topic_id}"
                LOGGER.warning("share group %s: trying %s again: %s", group_id, what, problem)

    async def initialize(
        self, group_id: str, state_epoch: int, offsets: Mapping[TopicIdPartition, int]
    ) -> Outcome:
        """Initialize partitions at these start offsets (NO_OFFSET: according to the group's
        settings), and update the group. Raises KafkaError if the group cannot be updated.
        """
        persister = self._persister()
        outcome = await _each(
            {
                tp: persister.initialize(_key(group_id, tp), state_epoch, offset)
                for tp, offset in offsets.items()
            }
        )
        done = [tp for tp, error in outcome.items() if error is None]
        failed = [tp for tp, error in outcome.items() if error is not None]
        event = ShareStatesInitialized(group_id, _by_topic(done), _by_topic(failed))
        await self._groups().apply_event(group_id, event)
        return outcome

    async def delete(
        self, group_id: str, partitions: Mapping[UUID, int]
    ) -> dict[UUID, KafkaError | None]:
        """Delete the state of topics that the group has marked for deletion, and update the group.
        ``partitions``: the number of partitions of each topic. Raises KafkaError if the group
        cannot be updated.
        """
        persister = self._persister()
        outcome = await _each(
            {
                (topic_id, partition): persister.delete(_key(group_id, (topic_id, partition)))
                for topic_id, count in partitions.items()
                for partition in range(count)
            }
        )
        errors: dict[UUID, KafkaError | None] = dict.fromkeys(partitions)
        for (topic_id, _), error in outcome.items():
            errors[topic_id] = errors[topic_id] or error
        deleted = frozenset(topic_id for topic_id, error in errors.items() if error is None)
        event = ShareStatesDeleted(group_id, frozenset(partitions), deleted)
        await self._groups().apply_event(group_id, event)
        return errors

    async def delete_all(self, group_id: str) -> None:
        """Delete all state of a group that is about to be deleted. Raises KafkaError if some of it
        remains. The state of a group with members is not deleted.
        """
        coordinator = self._groups()
        before = self.group(group_id)
        if before is None or before.members:
            return
        known = {
            topic_id: max(topic.partitions, default=-1) + 1
            for stage in (before.states.initialized, before.states.initializing)
            for topic_id, topic in stage.items()
        }
        await coordinator.apply_event(group_id, ShareStatesDeleting(group_id))
        group = self.group(group_id)
        deletions = frozenset() if group is None else group.deletions
        image = coordinator.topic.image
        counts = {}
        for topic_id in deletions:
            topic = image.topic_by_id(topic_id)
            counts[topic_id] = known.get(topic_id, 0) if topic is None else len(topic.partitions)
        for error in (await self.delete(group_id, counts)).values():
            if error is not None:
                raise error

    async def summaries(
        self, group_id: str, topic_partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, ShareSummary | KafkaError]:
        """The group's progress in these partitions, or an error for each."""
        wanted = list(topic_partitions)
        persister = self._persister()
        found = await asyncio.gather(
            *(persister.read_summary(_key(group_id, tp), NO_EPOCH) for tp in wanted),
            return_exceptions=True,
        )
        results: dict[TopicIdPartition, ShareSummary | KafkaError] = {}
        for tp, each in zip(wanted, found, strict=True):
            if isinstance(each, BaseException) and not isinstance(each, KafkaError):
                raise each
            results[tp] = each
        return results


def _key(group_id: str, tp: TopicIdPartition) -> SharePartitionKey:
    return SharePartitionKey(group_id, *tp)


def _by_topic(topic_partitions: Iterable[TopicIdPartition]) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for topic_id, partition in topic_partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


async def _each(
    calls: Mapping[TopicIdPartition, Awaitable[None]],
) -> dict[TopicIdPartition, KafkaError | None]:
    """The error of each, if any. Raises errors other than KafkaError."""
    done = await asyncio.gather(*calls.values(), return_exceptions=True)
    outcome: dict[TopicIdPartition, KafkaError | None] = {}
    for tp, error in zip(calls, done, strict=True):
        if error is not None and not isinstance(error, KafkaError):
            raise error
        outcome[tp] = error
    return outcome
