"""The share-partitions' state as a share group knows it (KIP-932): the partitions that the share
coordinator is initializing, those that are initialized, and the topics whose state is being
deleted. Only initialized partitions are assigned to members. It makes no decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.record import GroupRecord
from kstore.protocol.coordinator_records.share_groups import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)

__all__ = [
    "NO_STATES",
    "Partitions",
    "States",
    "TopicStates",
    "known_of",
    "states_record",
    "states_tombstone",
]

Partitions = Mapping[UUID, frozenset[int]]
"""Topic id to partitions."""


class TopicStates(NamedTuple):
    """Partitions of one topic, and its name."""

    name: str
    partitions: frozenset[int]


class States(NamedTuple):
    """The three stages by topic id. A partition is in at most one of the first two. A topic whose
    state is being deleted is in neither.
    """

    initializing: Mapping[UUID, TopicStates]
    initialized: Mapping[UUID, TopicStates]
    deleting: Mapping[UUID, str]
    """Topic id to name."""

    def holds(self, topic_id: UUID, partition: int) -> bool:
        """Whether a partition's state is initialized, or is about to be."""
        return any(
            topic_id in stage and partition in stage[topic_id].partitions
            for stage in (self.initializing, self.initialized)
        )

    def with_initializing(self, added: Mapping[UUID, TopicStates]) -> States:
        """Note that the partitions are being initialized."""
        return self._replace(initializing=_union(self.initializing, added))

    def with_initialized(self, done: Mapping[UUID, TopicStates]) -> States:
        """Note that the partitions are initialized."""
        return self._replace(
            initializing=_without(self.initializing, done),
            initialized=_union(self.initialized, done),
        )

    def without_initializing(self, failed: Mapping[UUID, TopicStates]) -> States:
        """Note that the partitions could not be initialized."""
        return self._replace(initializing=_without(self.initializing, failed))

    def with_deleting(self, topics: Mapping[UUID, str]) -> States:
        """Note that the state of whole topics is being deleted."""
        return States(
            {key: topic for key, topic in self.initializing.items() if key not in topics},
            {key: topic for key, topic in self.initialized.items() if key not in topics},
            {**self.deleting, **topics},
        )

    def without_deleting(self, topic_ids: Iterable[UUID]) -> States:
        """Note that the state of whole topics is deleted."""
        gone = frozenset(topic_ids)
        left = {key: name for key, name in self.deleting.items() if key not in gone}
        return self._replace(deleting=left)


NO_STATES = States({}, {}, {})


def _union(
    one: Mapping[UUID, TopicStates], other: Mapping[UUID, TopicStates]
) -> dict[UUID, TopicStates]:
    merged = dict(one)
    for topic_id, topic in other.items():
        known = merged.get(topic_id)
        partitions = topic.partitions if known is None else topic.partitions | known.partitions
        merged[topic_id] = TopicStates(topic.name, partitions)
    return merged


def _without(
    one: Mapping[UUID, TopicStates], other: Mapping[UUID, TopicStates]
) -> dict[UUID, TopicStates]:
    left = {}
    for topic_id, topic in one.items():
        gone = other[topic_id].partitions if topic_id in other else frozenset()
        partitions = topic.partitions - gone
        if partitions:
            left[topic_id] = TopicStates(topic.name, partitions)
    return left


def states_record(group_id: str, states: States) -> GroupRecord:
    """The record of all three stages."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_stored(states.initializing),
        initialized_topics=_stored(states.initialized),
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in states.deleting.items()
        ],
    )
    return GroupRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _stored(topics: Mapping[UUID, TopicStates]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
        )
        for topic_id, topic in topics.items()
    ]


def states_tombstone(group_id: str) -> GroupRecord:
    """The record that deletes all three stages."""
    return GroupRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None)


def known_of(value: ShareGroupStatePartitionMetadataValue | None) -> States:
    """The stages in a record."""
    if value is None:
        return NO_STATES
    return States(
        _restored(value.initializing_topics),
        _restored(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def _restored(stored: Iterable[TopicPartitionsInfo]) -> dict[UUID, TopicStates]:
    return {
        topic.topic_id: TopicStates(topic.topic_name, frozenset(topic.partitions))
        for topic in stored
    }
