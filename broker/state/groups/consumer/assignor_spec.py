"""What a server-side assignor is given and what it answers. No rules are here.

Of a topic that shrinks a group may be given partitions that are not its first ones: assignors
number these from 0 without a gap.
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
    """What an assignor may know of a member."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    """The topics that it subscribes to, as far as they exist."""
    target: Mapping[UUID, frozenset[int]]
    """What it was to own until now."""


class GroupSpec(NamedTuple):
    """A group to be assigned: members by id, and the partition count of every subscribed topic."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[UUID, int]
    homogeneous: bool
    """Whether all members subscribe to the same topics."""


Target: TypeAlias = Mapping[UUID, frozenset[int]]
Open: TypeAlias = Mapping[UUID, tuple[int, ...]]
"""By topic, in order; topics without gaps are missing."""


def open_partitions(topics: Iterable[TopicImage]) -> Open:
    """Of the topics that hide some."""
    return {
        topic.topic_id: tuple(i for i in range(len(topic.partitions)) if i not in topic.hidden)
        for topic in topics
        if topic.hidden
    }


def count(topic: TopicImage) -> int:
    """How many of a topic's partitions the group may be given."""
    return len(topic.partitions) - len(topic.hidden)


def numbered(target: Target, places: Open) -> Target:
    """A target as an assignor knows it; what is not open is left out."""
    if places.keys().isdisjoint(target):
        return target
    return {
        topic_id: frozenset(i for i, place in enumerate(places[topic_id]) if place in indexes)
        if topic_id in places
        else indexes
        for topic_id, indexes in target.items()
    }


def unnumbered(target: dict[UUID, frozenset[int]], places: Open) -> dict[UUID, frozenset[int]]:
    """What an assignor says, in the topics' own numbers."""
    if places.keys().isdisjoint(target):
        return target
    return {
        topic_id: frozenset(places[topic_id][i] for i in indexes) if topic_id in places else indexes
        for topic_id, indexes in target.items()
    }
