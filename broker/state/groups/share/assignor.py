"""The assignor of share groups (KIP-932; Kafka's is called "simple"): which members share which
partitions. It depends only on its arguments.

If all members subscribe to the same topics, the topics are spread together, else one by one. A
spread gives each partition to the same number of members: one, or as many as are needed so that
every member has a partition. The numbers of partitions of two members differ by at most one. Within
these limits, members keep their partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from kstore.broker.state.groups.share.member import Assigned
from kstore.broker.state.work import Work

__all__ = ["ASSIGNOR", "assign"]

ASSIGNOR = "simple"

TopicIdPartition: TypeAlias = tuple[UUID, int]


def assign(
    subscriptions: Mapping[str, frozenset[UUID]],
    partitions: Mapping[UUID, frozenset[int]],
    previous: Mapping[str, Assigned],
) -> Work[dict[str, dict[UUID, frozenset[int]]]]:
    """The target of every member. ``subscriptions``: member id to topics. ``partitions``: the
    assignable partitions by topic. ``previous``: the previous targets.
    """
    assigned: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in subscriptions}
    for topics, members in _rounds(subscriptions, partitions):
        topic_partitions = [
            (topic_id, p) for topic_id in topics for p in sorted(partitions[topic_id])
        ]
        wanted = frozenset(topic_partitions)
        kept = {
            member_id: {
                (topic_id, partition)
                for topic_id in topics
                for partition in previous.get(member_id, {}).get(topic_id, ())
            }
            & wanted
            for member_id in members
        }
        spread = yield from _spread(topic_partitions, members, kept)
        for member_id, had in spread.items():
            for topic_id, partition in had:
                assigned[member_id].setdefault(topic_id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(had) for topic_id, had in sorted(topics.items())}
        for member_id, topics in assigned.items()
    }


def _rounds(
    subscriptions: Mapping[str, frozenset[UUID]], partitions: Mapping[UUID, frozenset[int]]
) -> list[tuple[list[UUID], list[str]]]:
    """The topics that are spread together, and their members."""
    if len(set(subscriptions.values())) == 1:
        (topics,) = set(subscriptions.values())
        return [(sorted(topics & partitions.keys()), sorted(subscriptions))]
    subscribers: dict[UUID, list[str]] = {}
    for member_id in sorted(subscriptions):
        for topic_id in subscriptions[member_id] & partitions.keys():
            subscribers.setdefault(topic_id, []).append(member_id)
    return [([topic_id], subscribers[topic_id]) for topic_id in sorted(subscribers)]


def _spread(
    topic_partitions: Sequence[TopicIdPartition],
    members: Sequence[str],
    kept: Mapping[str, set[TopicIdPartition]],
) -> Work[dict[str, set[TopicIdPartition]]]:
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    if not topic_partitions:
        return assigned
    sharing = -(-len(members) // len(topic_partitions))
    least, more = divmod(len(topic_partitions) * sharing, len(members))
    holders = dict.fromkeys(topic_partitions, 0)
    # Members with more partitions keep more; ids decide between equals.
    order = sorted(members, key=lambda member_id: (-len(kept[member_id]), member_id))
    most = {member_id: least + (rank < more) for rank, member_id in enumerate(order)}
    for member_id in order:
        for tp in sorted(kept[member_id]):
            if len(assigned[member_id]) < most[member_id] and holders[tp] < sharing:
                assigned[member_id].add(tp)
                holders[tp] += 1
        yield
    free = [tp for tp in topic_partitions for _ in range(sharing - holders[tp])]
    free.reverse()
    for member_id in members:
        while len(assigned[member_id]) < most[member_id]:
            _take_one(member_id, free, assigned)
        yield
    return assigned


def _take_one(
    member_id: str, free: list[TopicIdPartition], assigned: dict[str, set[TopicIdPartition]]
) -> None:
    """Give a member one of the free partitions, beginning with the last. If it already has all of
    these, another member takes one of them, and the member gets one of that member's.
    """
    has = assigned[member_id]
    for index in range(len(free) - 1, -1, -1):
        if free[index] not in has:
            has.add(free.pop(index))
            return
    tp = free.pop()
    for other_id, others in assigned.items():
        spare = min(others - has, default=None)
        if tp not in others and spare is not None and other_id != member_id:
            others.remove(spare)
            others.add(tp)
            has.add(spare)
            return
    raise AssertionError(
        f"{member_id} has every partition that any other member has, and needs one more"
    )
