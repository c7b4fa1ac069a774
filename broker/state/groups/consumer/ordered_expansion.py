"""`kstore.ordered.expansion` (KIP-253 for consumers that know nothing of it): which partitions a
group may be given.

A partition that was added is held back until the group has committed all that was written to the
partitions before it under the old count; of a topic that shrinks, the partitions that remain, until
it has committed those that retire to their end. What is held back does not exist for the group. It
knows thresholds, and not how to find them (runtime/groups/expansion_gates.py does).

Groups of the consumer protocol are held back by both, groups of the classic protocol by a
contraction (classic/held_back.py).
"""

from __future__ import annotations

from typing import Any

from kstore.broker.state.groups.classic.group import ClassicGroup
from kstore.broker.state.groups.classic.held_back import assigned_partitions
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.positions import committed_offset
from kstore.broker.state.groups.result import GroupContext
from kstore.broker.state.metadata.gates import UNKNOWN, TopicGates
from kstore.broker.state.metadata.image import MetadataImage, TopicImage

__all__ = ["as_seen_by", "has_read_retired", "held_back"]


def as_seen_by(shard: ShardState, group_id: str, ctx: GroupContext) -> GroupContext:
    """The context with the topics as the group sees them."""
    image = ctx.image
    if image is None or not image.ordered:
        return ctx
    hidden = {}
    for name in sorted(image.ordered):
        missing = held_back(shard, group_id, image, image.topics[name])
        if missing:
            hidden[name] = missing
    return ctx._replace(image=image.without(hidden)) if hidden else ctx


def held_back(
    shard: ShardState, group_id: str, image: MetadataImage, topic: TopicImage
) -> frozenset[int]:
    """The partitions that the group may not be given. What members are to own already stays open
    where it is not known (yet) that the group may not have it.
    """
    retirement = topic.retirement
    end = len(topic.partitions) if retirement is None else retirement.first
    assigned = _assigned(shard.groups.get(group_id), topic)
    if retirement is not None and not has_read_retired(shard, group_id, image, topic):
        # Who reads what remains keeps a contraction from being decided; and once it is decided,
        # has read what retires, though a coordinator that has just begun does not know the ends.
        stays = not (retirement.holds and _is_known_behind(shard, group_id, image, topic))
        if not stays or all(index >= end for index in assigned):
            return frozenset(range(end))
    opened = _open_count(shard, group_id, image, topic, end, assigned)
    return frozenset(range(opened, end)) - assigned


def has_read_retired(
    shard: ShardState, group_id: str, image: MetadataImage, topic: TopicImage
) -> bool:
    """Whether the group has committed the partitions that retire to their end."""
    gates = _gates(image, topic)
    return gates is not None and not any(
        _is_before(committed_offset(shard, group_id, topic.name, index, image), end)
        for index, end in gates.retired
    )


def _is_known_behind(
    shard: ShardState, group_id: str, image: MetadataImage, topic: TopicImage
) -> bool:
    """Whether a partition that retires has an end that is known, and that the group has not
    committed.
    """
    gates = _gates(image, topic)
    return gates is not None and any(
        end != UNKNOWN
        and _is_before(committed_offset(shard, group_id, topic.name, index, image), end)
        for index, end in gates.retired
    )


def _gates(image: MetadataImage, topic: TopicImage) -> TopicGates | None:
    gates = image.gates.get(topic.name)
    if gates is None or not gates.is_of(topic.topic_id, topic.retirement):
        return None
    return gates


def _open_count(
    shard: ShardState,
    group_id: str,
    image: MetadataImage,
    topic: TopicImage,
    end: int,
    assigned: frozenset[int],
) -> int:
    """How many of a topic's partitions below an index, the first ones, the group may be given.

    A partition that is assigned already stays open, and one that the group has read from.
    """
    gates = _gates(image, topic)
    known = 0 if gates is None else min(gates.partitions, end)

    def committed(index: int) -> int:
        return committed_offset(shard, group_id, topic.name, index, image)

    closed: list[int] = sorted(gates.thresholds) if gates is not None else []
    for index in closed + list(range(known, end)):
        if index >= end:
            break
        if index in assigned or committed(index) > 0:
            continue
        if index >= known or gates is None:
            return index
        if any(_is_before(committed(prior), until) for prior, until in gates.thresholds[index]):
            return index
    return end


def _is_before(committed: int, threshold: int) -> bool:
    """Whether something is left to be read; of an empty partition nothing is."""
    return threshold == UNKNOWN or max(committed, 0) < threshold


def _assigned(group: Any, topic: TopicImage) -> frozenset[int]:
    if isinstance(group, ConsumerGroup):
        targets = group.target.values()
        return frozenset().union(*(each.get(topic.topic_id, ()) for each in targets))
    if isinstance(group, ClassicGroup):
        return assigned_partitions(group, topic.name) or frozenset()
    return frozenset()
