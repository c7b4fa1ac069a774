"""The input and output of a server-side assignor.

During a contraction, the partitions that a group may have need not be the first ones. Assignors get
them numbered from 0 without gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kstore.broker.state.metadata.image import TopicImage

__all__ = [
    "Assignments",
    "GroupSpec",
    "MemberSpec",
    "Open",
    "count",
    "numbered",
    "open_partitions",
    "unnumbered",
]

Assignments: TypeAlias = dict[str, dict[UUID, frozenset[int]]]
"""Member id to topic id to partitions."""


class MemberSpec(NamedTuple):
    """A member in the input of an assignor."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    """The existing topics that it subscribes to."""
    target: Mapping[UUID, frozenset[int]]
    """Its previous target."""


class GroupSpec(NamedTuple):
    """The input of an assignor: members by id, and the partition count of every subscribed
    topic.
    """

    members: Mapping[str, MemberSpec]
    partitions: Mapping[UUID, int]
    homogeneous: bool
    """Whether all members subscribe to the same topics."""


Target: TypeAlias = Mapping[UUID, frozenset[int]]
Open: TypeAlias = Mapping[UUID, tuple[int, ...]]
"""Topic to its sorted open partitions, which a group may have. Topics without gaps are left out."""


def open_partitions(topics: Iterable[TopicImage]) -> Open:
    """The open partitions of topics with hidden partitions."""
    return {
        topic.topic_id: tuple(i for i in range(len(topic.partitions)) if i not in topic.hidden)
        for topic in topics
        if topic.hidden
    }


def count(topic: TopicImage) -> int:
    """How many partitions of a topic the group may have."""
    return len(topic.partitions) - len(topic.hidden)


def numbered(target: Target, places: Open) -> Target:
    """A target in an assignor's numbers. Partitions that are not open are left out."""
    if places.keys().isdisjoint(target):
        return target
    return {
        topic_id: frozenset(i for i, place in enumerate(places[topic_id]) if place in indexes)
        if topic_id in places
        else indexes
        for topic_id, indexes in target.items()
    }


def unnumbered(target: dict[UUID, frozenset[int]], places: Open) -> dict[UUID, frozenset[int]]:
    """An assignor's result in the numbers of the topics."""
    if places.keys().isdisjoint(target):
        return target
    return {
        topic_id: frozenset(places[topic_id][i] for i in indexes) if topic_id in places else indexes
        for topic_id, indexes in target.items()
    }
