"""The sticky assignors (KIP-54, KIP-429): as balanced as the subscriptions allow, with as few moves
as possible.

Balanced means that no partition could move to a member that has at least two fewer than its owner.
The owned partitions come from the user data (sticky) or from the owned partitions
(cooperative-sticky). If two members claim a partition, the claim of the later generation counts; of
equal ones, neither does.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from kstore.clients.core.group.assignors import Assignor, Subscription, in_order
from kstore.errors import ProtocolError
from kstore.protocol.schema import Int32, Message, String, Struct, field
from kstore.types import TopicPartition

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]

Claims = Mapping[str, tuple[int, Iterable[TopicPartition]]]
"""Member id to (generation, partitions held)."""
NO_GENERATION = -1


class StickyTopic(Struct):
    """One topic of StickyUserData."""

    topic: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class StickyUserData(Message, versions="0-1"):
    """The user data of Kafka's sticky assignor: the member's partitions, and since version 1 their
    generation.
    """

    previous_assignment: list[StickyTopic] = field("0+", default=[])
    generation: Int32 = field("1+", default=-1)


class StickyAssignor(Assignor):
    """Sticky with the eager protocol: members give up everything, and get most of it back."""

    name = "sticky"

    def __init__(self) -> None:
        self._held: list[TopicPartition] = []
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The partitions that this member had."""
        rows: dict[str, StickyTopic] = {}
        for tp in sorted(self._held):
            row = rows.setdefault(tp.topic, StickyTopic(topic=tp.topic, partitions=[]))
            row.partitions.append(tp.partition)
        data = StickyUserData(previous_assignment=list(rows.values()), generation=self._generation)
        return data.encode(1)

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Remember the partitions for the next rebalance."""
        self._held = list(partitions)
        self._generation = generation

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See Assignor."""
        claims = {member_id: _parsed(row.user_data) for member_id, row in members.items()}
        return balanced(partition_counts, members, claims)


class CooperativeStickyAssignor(Assignor):
    """Sticky with the cooperative protocol: a partition moves in two rebalances. The first one
    revokes it from its owner.
    """

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation, for leaders that know no newer field for it (KIP-792)."""
        return struct.pack(">i", self._generation)

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Remember the generation."""
        self._generation = generation

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See Assignor. Partitions that another member still owns are not assigned in this
        rebalance.
        """
        claims = {member_id: (_generation(row), row.owned) for member_id, row in members.items()}
        wanted = balanced(partition_counts, members, claims)
        holders: dict[TopicPartition, set[str]] = {}
        for member_id, row in members.items():
            for tp in row.owned:
                holders.setdefault(tp, set()).add(member_id)
        return {
            member_id: [tp for tp in given if member_id in holders.get(tp, {member_id})]
            for member_id, given in wanted.items()
        }


def _parsed(user_data: bytes | None) -> tuple[int, list[TopicPartition]]:
    """The data that a member's sticky assignor remembers; nothing if it can't be parsed."""
    if not user_data:
        return NO_GENERATION, []
    try:
        data = StickyUserData.decode(user_data, 1)
    except ProtocolError:
        try:
            data = StickyUserData.decode(user_data, 0)
        except ProtocolError:
            return NO_GENERATION, []
    held = [
        TopicPartition(row.topic, index)
        for row in data.previous_assignment
        for index in row.partitions
    ]
    return data.generation, held


def _generation(row: Subscription) -> int:
    if row.generation != NO_GENERATION or row.user_data is None or len(row.user_data) != 4:
        return row.generation
    return int(struct.unpack(">i", row.user_data)[0])


def balanced(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """A balanced assignment that is close to the current one."""
    order = in_order(members)
    held = _held(partition_counts, members, claims)
    topics = {frozenset(row.topics & partition_counts.keys()) for row in members.values()}
    if len(topics) > 1:
        return _general(partition_counts, members, order, held)
    return _uniform(_partitions(partition_counts, next(iter(topics), frozenset())), order, held)


def _partitions(
    partition_counts: Mapping[str, int], topics: Iterable[str]
) -> Iterator[TopicPartition]:
    for topic in sorted(topics):
        for index in range(partition_counts[topic]):
            yield TopicPartition(topic, index)


def _held(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription], claims: Claims
) -> dict[TopicPartition, str]:
    """The owned partitions that exist and are subscribed to."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (generation, partitions) in claims.items():
        topics = members[member_id].topics
        for tp in set(partitions):
            if tp.topic not in topics or not 0 <= tp.partition < partition_counts.get(tp.topic, 0):
                continue
            known = best.get(tp)
            if known is None or generation > known[0]:
                best[tp] = (generation, member_id)
            elif generation == known[0]:
                best[tp] = (generation, None)
    return {tp: owner for tp, (_, owner) in best.items() if owner is not None}


def _uniform(
    partitions: Iterable[TopicPartition], order: list[str], held: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    """All members have the same subscription: each keeps partitions up to a quota, and the rest is
    distributed.
    """
    everything = list(partitions)
    each, more = divmod(len(everything), len(order))
    holding = Counter(held.values())
    richest = sorted(order, key=lambda member_id: -holding[member_id])
    quota = {member_id: each + (place < more) for place, member_id in enumerate(richest)}
    given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in order}
    left = []
    for tp in everything:
        owner = held.get(tp)
        if owner is not None and len(given[owner]) < quota[owner]:
            given[owner].append(tp)
        else:
            left.append(tp)
    # In turns, so that a topic's partitions are spread over members.
    open_members = [member_id for member_id in order if len(given[member_id]) < quota[member_id]]
    turn = 0
    for tp in left:
        member_id = open_members[turn]
        given[member_id].append(tp)
        if len(given[member_id]) == quota[member_id]:
            open_members.pop(turn)
        else:
            turn += 1
        turn = turn % len(open_members) if open_members else 0
    return given


def _general(
    partition_counts: Mapping[str, int],
    members: Mapping[str, Subscription],
    order: list[str],
    held: Mapping[TopicPartition, str],
) -> dict[str, list[TopicPartition]]:
    """Subscriptions differ: keep the owned partitions, give the rest to the members with the
    fewest, then move until no move improves the balance. Each move reduces the sum of squares of
    the loads, so it terminates.
    """
    takers = {
        topic: [member_id for member_id in order if topic in members[member_id].topics]
        for topic in partition_counts
    }
    loads = dict.fromkeys(order, 0)
    owners = dict(held)
    for owner in owners.values():
        loads[owner] += 1
    topics = [topic for topic in partition_counts if takers[topic]]
    everything = sorted(_partitions(partition_counts, topics), key=lambda tp: len(takers[tp.topic]))
    for tp in everything:
        if tp not in owners:
            owners[tp] = _poorest(takers[tp.topic], loads)
            loads[owners[tp]] += 1
    moved = True
    while moved:
        moved = False
        for tp in everything:
            owner, taker = owners[tp], _poorest(takers[tp.topic], loads)
            if loads[taker] < loads[owner] - 1:
                owners[tp] = taker
                loads[owner] -= 1
                loads[taker] += 1
                moved = True
    given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in order}
    for tp in sorted(owners):
        given[owners[tp]].append(tp)
    return given


def _poorest(member_ids: list[str], loads: Mapping[str, int]) -> str:
    return min(member_ids, key=lambda member_id: loads[member_id])
