"""The client-side assignors of the classic protocol: the group's leader uses them to assign
partitions. range and roundrobin return the same assignments as Kafka's; the sticky ones
(sticky_assignor) follow Kafka's rules: first balance, then as few moves as possible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, NamedTuple, TypeAlias

from kstore.types import TopicPartition

__all__ = ["Assignments", "Assignor", "RangeAssignor", "RoundRobinAssignor", "Subscription"]

Assignments: TypeAlias = Mapping[str, Iterable[TopicPartition]]
"""The partitions of each member id."""


class Subscription(NamedTuple):
    """A member's subscription, as the leader receives it."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that it owns; empty with an eager assignor."""
    generation: int = -1
    """The generation in which it got them."""
    user_data: bytes | None = None
    instance_id: str | None = None
    rack: str | None = None


class Assignor:
    """A rule that assigns partitions. To write your own, subclass it and pass an instance (or the
    class) in `partition.assignment.strategy`; all members of a group need one with the same name.
    """

    name: ClassVar[str] = ""
    """The name in JoinGroup."""
    cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance (KIP-429). Then a partition must not
    be assigned to a member while another one owns it; see sticky_assignor.
    """

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Assignments:
        """Assign partitions to each member; the counts contain only topics that exist. Has no side
        effects. The result has an entry for every member.
        """
        raise NotImplementedError

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """This member's user data, which the leader's `assign` gets."""
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """The member got these partitions in a generation."""


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids in Kafka's order: static members by instance id, then dynamic ones by member id.
    So a static member that returns with another member id gets the same partitions.
    """

    def key(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(members, key=key)


class RangeAssignor(Assignor):
    """For each topic, each member gets a range of partitions; the first members get one more."""

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
    """All partitions of all topics in order, each to the next member that subscribes to its
    topic.
    """

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
