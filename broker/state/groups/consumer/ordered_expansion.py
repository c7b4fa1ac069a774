"""`kstore.ordered.expansion` (KIP-253 for consumers that do not support it): which partitions a
group may have.

An added partition is held back until the group has committed all records that were written to its
prior partitions under the old count. During a contraction, the remaining partitions are held back
until the group has committed the retired ones to their end. A partition that is held back does not
exist for the group. runtime/groups/expansion_gates.py finds the offsets that must be committed.

Expansions and contractions hold back groups of the consumer protocol; only contractions hold back
groups of the classic protocol (classic/held_back.py).
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
    """The context with the topics that the group may have."""
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
    """The partitions that the group may not have. Partitions in the target stay open until it is
    known that the group may not have them.
    """
    retirement = topic.retirement
    end = len(topic.partitions) if retirement is None else retirement.first
    assigned = _assigned(shard.groups.get(group_id), topic)
    if retirement is not None and not has_read_retired(shard, group_id, image, topic):
        # A contraction is not decided while a group reads remaining partitions and has not read the
        # retired ones. Once it is decided, such a group has read the retired partitions, even if a
        # new coordinator does not know their ends.
        stays = not (retirement.holds and _is_known_behind(shard, group_id, image, topic))
        if not stays or all(index >= end for index in assigned):
            return frozenset(range(end))
    opened = _open_count(shard, group_id, image, topic, end, assigned)
    return frozenset(range(opened, end)) - assigned


def has_read_retired(
    shard: ShardState, group_id: str, image: MetadataImage, topic: TopicImage
) -> bool:
    """Whether the group has committed the retired partitions to their end."""
    gates = _gates(image, topic)
    return gates is not None and not any(
        _is_before(committed_offset(shard, group_id, topic.name, index, image), end)
        for index, end in gates.retired
    )


def _is_known_behind(
    shard: ShardState, group_id: str, image: MetadataImage, topic: TopicImage
) -> bool:
    """Whether a retired partition has a known end that the group has not committed."""
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
    """How many of the first partitions of a topic, below ``end``, the group may have.

    A partition that is assigned already, or that the group has read from, stays open.
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
    """Whether there are records to read before the threshold. An empty partition has none."""
    return threshold == UNKNOWN or max(committed, 0) < threshold


def _assigned(group: Any, topic: TopicImage) -> frozenset[int]:
    if isinstance(group, ConsumerGroup):
        targets = group.target.values()
        return frozenset().union(*(each.get(topic.topic_id, ()) for each in targets))
    if isinstance(group, ClassicGroup):
        return assigned_partitions(group, topic.name) or frozenset()
    return frozenset()
