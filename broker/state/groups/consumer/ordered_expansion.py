"""`kstore.ordered.expansion` (KIP-253 for consumers that know nothing of it): which partitions a
group of the consumer protocol may be given.

A partition that was added is held back until the group has committed all that was written to the
partitions before it under the old count. What is held back does not exist for the group: its steps
see the topic with as many partitions as are open. It knows thresholds, and not how to find them
(runtime/groups/expansion_gates.py does).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kstore.broker.state.groups.consumer.group import CONSUMER_KIND
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.positions import committed_offset
from kstore.broker.state.groups.result import GroupContext
from kstore.broker.state.metadata.gates import UNKNOWN
from kstore.broker.state.metadata.image import MetadataImage, TopicImage

__all__ = ["as_seen_by", "open_count"]


def as_seen_by(shard: ShardState, group_id: str, ctx: GroupContext) -> GroupContext:
    """The context with the topics as the group sees them."""
    image = ctx.image
    if image is None or not image.ordered:
        return ctx
    counts = {}
    for name in sorted(image.ordered):
        count = open_count(shard, group_id, image, image.topics[name])
        if count < len(image.topics[name].partitions):
            counts[name] = count
    return ctx._replace(image=image.cut(counts)) if counts else ctx


def open_count(shard: ShardState, group_id: str, image: MetadataImage, topic: TopicImage) -> int:
    """How many of a topic's partitions, the first ones, the group may be given.

    A partition that a member is to own already stays open, and one that the group has read from.
    """
    gates = image.gates.get(topic.name)
    if gates is not None and gates.topic_id != topic.topic_id:
        gates = None
    known = 0 if gates is None else min(gates.partitions, len(topic.partitions))
    assigned = _assigned(shard.groups.get(group_id), topic.topic_id)

    def committed(index: int) -> int:
        return committed_offset(shard, group_id, topic.name, index, image)

    closed: list[int] = sorted(gates.thresholds) if gates is not None else []
    for index in closed + list(range(known, len(topic.partitions))):
        if index >= len(topic.partitions):
            break
        if index in assigned or committed(index) > 0:
            continue
        if index >= known or gates is None:
            return index
        if any(_is_before(committed(prior), end) for prior, end in gates.thresholds[index]):
            return index
    return len(topic.partitions)


def _is_before(committed: int, threshold: int) -> bool:
    """Whether something is left to be read; of an empty partition nothing is."""
    return threshold == UNKNOWN or max(committed, 0) < threshold


def _assigned(group: Any, topic_id: UUID) -> set[int]:
    if group is None or group.kind != CONSUMER_KIND:
        return set()
    found: set[int] = set()
    for target in group.target.values():
        found |= target.get(topic_id, frozenset())
    return found
