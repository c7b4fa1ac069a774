"""The `uniform` assignor: the numbers of partitions of any two members differ by at most one, and
members keep as many of their partitions as possible.

With equal subscriptions, the quota is known from the start. With different ones, each partition is
assigned to the least loaded subscriber, topic by topic; then partitions move from loaded to less
loaded subscribers.
"""

from __future__ import annotations

import heapq
from uuid import UUID

from kstore.broker.state.groups.consumer.assignor_spec import Assignments, GroupSpec
from kstore.broker.state.work import Work

__all__ = ["assign_uniform"]

MAX_ROUNDS = 16
"""The limit of rounds. Overlapping subscriptions may need many rounds; each halves the remaining
imbalance, so this is enough.
"""


def assign_uniform(spec: GroupSpec) -> Work[Assignments]:
    """Balance the subscribed partitions over the members."""
    if not spec.members:
        return {}
    if spec.homogeneous:
        return (yield from _by_quota(spec))
    return (yield from _Balancer(spec).balanced())


def _kept(spec: GroupSpec, member_id: str) -> dict[UUID, list[int]]:
    """The partitions that a member has and may keep: existing partitions of subscribed topics."""
    member = spec.members[member_id]
    return {
        topic_id: sorted(p for p in partitions if p < spec.partitions[topic_id])
        for topic_id, partitions in member.target.items()
        if topic_id in member.topic_ids
    }


def _by_quota(spec: GroupSpec) -> Work[Assignments]:
    topic_ids = next(iter(spec.members.values())).topic_ids
    total = sum(spec.partitions[topic_id] for topic_id in topic_ids)
    quota, extras = divmod(total, len(spec.members))
    had: dict[str, dict[UUID, list[int]]] = {}
    sizes: dict[str, int] = {}
    for member_id in spec.members:
        had[member_id] = kept = _kept(spec, member_id)
        sizes[member_id] = sum(map(len, kept.values()))
        yield
    # A member with more than its quota keeps one extra partition while there are extra ones.
    limits = dict.fromkeys(spec.members, quota)
    for member_id, size in sizes.items():
        if extras and size > quota:
            limits[member_id] += 1
            extras -= 1
    # As in Kafka, the last members get the others.
    for member_id in reversed(list(spec.members)):
        if extras and limits[member_id] == quota:
            limits[member_id] += 1
            extras -= 1
    assigned: dict[str, dict[UUID, set[int]]] = {}
    owned: set[tuple[UUID, int]] = set()
    taken_away: list[tuple[UUID, int]] = []
    for member_id, kept in had.items():
        places = [(topic_id, index) for topic_id, indexes in kept.items() for index in indexes]
        limit = limits[member_id]
        taken_away += places[limit:]
        owned.update(places)
        mine = assigned[member_id] = {}
        for topic_id, index in places[:limit]:
            mine.setdefault(topic_id, set()).add(index)
        limits[member_id] = limit - min(limit, len(places))
        yield
    fresh: list[tuple[UUID, int]] = []
    for topic_id in topic_ids:
        every = ((topic_id, index) for index in range(spec.partitions[topic_id]))
        fresh += [place for place in every if place not in owned]
        yield
    free = iter(fresh + taken_away)
    for member_id, room in limits.items():
        for _, (topic_id, index) in zip(range(room), free, strict=False):
            assigned[member_id].setdefault(topic_id, set()).add(index)
        yield
    return (yield from _frozen(assigned))


class _Balancer:
    """Computes the assignment of members with different subscriptions."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.order = {member_id: index for index, member_id in enumerate(spec.members)}
        self.load = dict.fromkeys(spec.members, 0)
        self.subscribers: dict[UUID, list[str]] = {}
        self.owners: dict[UUID, dict[int, str]] = {}

    def balanced(self) -> Work[Assignments]:
        """Assign free partitions, then move partitions to improve the balance."""
        yield from self._find_owners()
        topics = sorted(self.subscribers, key=self._difficulty)
        for topic_id in topics:
            self._hand_out(topic_id)
            yield
        shared = [topic_id for topic_id in topics if len(self.subscribers[topic_id]) > 1]
        for _ in range(MAX_ROUNDS):
            moved = 0
            for topic_id in shared:
                moved += yield from self._level(topic_id)
            if not moved:
                break
        assigned: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in self.load}
        for topic_id, owners in self.owners.items():
            for index, member_id in owners.items():
                assigned[member_id].setdefault(topic_id, set()).add(index)
            yield
        return (yield from _frozen(assigned))

    def _find_owners(self) -> Work[None]:
        """Find the subscribers of topics, and what each member keeps for now."""
        for member_id, member in self.spec.members.items():
            for topic_id in member.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(member_id)
            yield
        self.owners = {topic_id: {} for topic_id in self.subscribers}
        for member_id in self.spec.members:
            for topic_id, indexes in _kept(self.spec, member_id).items():
                for index in indexes:
                    if index not in self.owners[topic_id]:
                        self.owners[topic_id][index] = member_id
                        self.load[member_id] += 1
            yield

    def _difficulty(self, topic_id: UUID) -> tuple[float, int, UUID]:
        """The sort key of topics: those with many partitions per subscriber come first, since the
        others can even out differences later.
        """
        subscribers = len(self.subscribers[topic_id])
        return -self.spec.partitions[topic_id] / subscribers, subscribers, topic_id

    def _hand_out(self, topic_id: UUID) -> None:
        """Assign each free partition to the least loaded subscriber."""
        owners = self.owners[topic_id]
        heap = [(self.load[m], self.order[m], m) for m in self.subscribers[topic_id]]
        heapq.heapify(heap)
        for index in range(self.spec.partitions[topic_id]):
            if index in owners:
                continue
            load, order, member_id = heap[0]
            owners[index] = member_id
            self.load[member_id] = load + 1
            heapq.heapreplace(heap, (load + 1, order, member_id))

    def _level(self, topic_id: UUID) -> Work[int]:
        """Move partitions of a topic from its most to its least loaded subscribers. Returns how
        many.
        """
        owners = self.owners[topic_id]
        held: dict[str, list[int]] = {}
        for index in sorted(owners):
            held.setdefault(owners[index], []).append(index)
        moved = 0
        while held:
            giver = max(held, key=lambda m: (self.load[m], self.order[m]))
            taker = min(self.subscribers[topic_id], key=lambda m: (self.load[m], self.order[m]))
            if self.load[giver] - self.load[taker] <= 1:
                break
            index = held[giver].pop()
            if not held[giver]:
                del held[giver]
            owners[index] = taker
            held.setdefault(taker, []).append(index)
            self.load[giver] -= 1
            self.load[taker] += 1
            moved += 1
            yield
        return moved


def _frozen(assigned: dict[str, dict[UUID, set[int]]]) -> Work[Assignments]:
    frozen: Assignments = {}
    for member_id, topics in assigned.items():
        frozen[member_id] = {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
        yield
    return frozen
