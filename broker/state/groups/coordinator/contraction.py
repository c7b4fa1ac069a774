"""Finds the groups that prevent a contraction (KIP-253): they read remaining partitions, to which
keys will move, and have not committed the retired ones to their end.

A group without remaining partitions gets none until it has committed the retired ones: see
consumer/ordered_expansion.py and classic/held_back.py. Share groups have no order.
"""

from __future__ import annotations

from typing import Any

from kstore.broker.state.groups.classic.group import STABLE, ClassicGroup
from kstore.broker.state.groups.classic.held_back import assigned_partitions
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.consumer.ordered_expansion import has_read_retired
from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.share.group import SHARE_KIND
from kstore.broker.state.metadata.image import MetadataImage, TopicImage
from kstore.broker.state.work import ROWS_BETWEEN, Work

__all__ = ["groups_behind"]


def groups_behind(shard: ShardState, image: MetadataImage, topic: TopicImage) -> Work[list[str]]:
    """The ids of the groups that prevent a contraction."""
    assert topic.retirement is not None
    found = []
    for number, (group_id, group) in enumerate(list(shard.groups.items()), 1):
        if _may_read(group, topic, topic.retirement.first) and not has_read_retired(
            shard, group_id, image, topic
        ):
            found.append(group_id)
        if number % ROWS_BETWEEN == 0:
            yield
    return found


def _may_read(group: Any, topic: TopicImage, first: int) -> bool:
    """Whether a member may be reading a partition below index ``first``."""
    if group.kind == SHARE_KIND or group.is_empty:
        return False
    if isinstance(group, ConsumerGroup):
        targets = [target.get(topic.topic_id, frozenset()) for target in group.target.values()]
        owned = {index for topic_id, index in group.owned if topic_id == topic.topic_id}
        return any(index < first for index in owned.union(*targets))
    if not group.is_subscribed_to(topic.name):
        return False
    if isinstance(group, ClassicGroup) and group.state == STABLE:
        assigned = assigned_partitions(group, topic.name)
        return assigned is None or any(index < first for index in assigned)
    return True
