"""The client-side assignors of the classic protocol: who gets which partition, as the group's
leader decides it. range and roundrobin give what Kafka's give, partition for partition; the sticky
ones (sticky_assignor) keep Kafka's rules, balance first, then as few moves as possible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, NamedTuple, TypeAlias

from kstore.types import TopicPartition

__all__ = ["Assignments", "Assignor", "RangeAssignor", "RoundRobinAssignor", "Subscription"]

Assignments: TypeAlias = Mapping[str, Iterable[TopicPartition]]
"""Member id to the partitions it gets."""


class Subscription(NamedTuple):
    """What a member told the leader."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    """What it holds; empty with an eager assignor."""
    generation: int = -1
    """The generation in which it got what it holds."""
    user_data: bytes | None = None
    instance_id: str | None = None
    rack: str | None = None


class Assignor:
    """A rule. To write one of your own, subclass it and pass an instance (or its class) in
    `partition.assignment.strategy`; all members of a group need one with the same name.
    """

    name: ClassVar[str] = ""
    """As it stands in JoinGroup."""
    cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance (KIP-429). Then a partition must not
    be given to a member while another one owns it; see sticky_assignor.
    """

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Assignments:
        """Partitions for each member; topics that do not exist are not in the counts. Has no
        effects. Every member has an entry in the answer.
        """
        raise NotImplementedError

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What the leader's `assign` is to see as this member's user data."""
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """The member got these in a generation."""


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids in Kafka's order: static members by instance id, then dynamic ones by member id;
    so a static member that comes back under another id gets the same.
    """

    def key(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(members, key=key)


class RangeAssignor(Assignor):
    """Topic by topic, each member gets a run of partitions; the first ones get one more."""

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See Assignor."""
        given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        order = in_order(members)
        for topic in sorted(partition_counts):
            takers = [member_id for member_id in order if topic in members[member_id].topics]
            if not takers:
                continue
            each, more = divmod(partition_counts[topic], len(takers))
            first = 0
            for place, member_id in enumerate(takers):
                end = first + each + (place < more)
                given[member_id] += [TopicPartition(topic, i) for i in range(first, end)]
                first = end
        return given


class RoundRobinAssignor(Assignor):
    """All partitions of all topics in order, one to each member in turn that subscribes to them."""

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See Assignor."""
        given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        order = in_order(members)
        subscribed = frozenset().union(*(row.topics for row in members.values()))
        turn = 0
        for topic in sorted(subscribed & partition_counts.keys()):
            for index in range(partition_counts[topic]):
                while topic not in members[order[turn % len(order)]].topics:
                    turn += 1
                given[order[turn % len(order)]].append(TopicPartition(topic, index))
                turn += 1
        return given
