"""broker/state/metadata/replica_assignment.py: replicas are spread over brokers and racks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.metadata.image import BrokerImage, PartitionImage, new_partitions
from kstore.broker.state.metadata.replica_assignment import assign_replicas


def brokers(racks: list[str | None]) -> list[BrokerImage]:
    return [BrokerImage(node, (), rack) for node, rack in enumerate(racks)]


def test_leaders_go_round_and_a_broker_that_goes_is_replaced_by_all_others() -> None:
    assigned = assign_replicas(brokers([None] * 3), 6, 2)
    assert assigned == ((0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1))


def test_small_topics_begin_where_they_are_told_to() -> None:
    assert [assign_replicas(brokers([None] * 3), 1, 1, start=n)[0][0] for n in range(4)] == [
        0, 1, 2, 0,
    ]  # fmt: skip


def test_replicas_of_a_partition_are_on_different_racks() -> None:
    for replicas in assign_replicas(brokers(["a", "a", "a", "b", "b", "c"]), 12, 3):
        assert sorted("aaabbc"[node] for node in replicas) == ["a", "b", "c"]


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(0, 1000),
)
def test_every_assignment_is_sound(
    racks: list[str | None], count: int, factor: int, start: int
) -> None:
    factor = min(factor, len(racks))
    assigned = assign_replicas(brokers(racks), count, factor, start=start)
    assert len(assigned) == count
    for replicas in assigned:
        assert len(set(replicas)) == factor
        used = Counter(racks[node] for node in replicas)
        assert len(used) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) <= -(-count // len(racks))


def test_of_many_partitions_only_the_different_ones_are_worked_out() -> None:
    for count in (1, 2, 3, 4):
        nodes = brokers([None] * count)
        assigned = assign_replicas(nodes, 50, count, start=5)
        assert assigned == tuple(
            assign_replicas(nodes, 1, count, start=5 + index)[0] for index in range(50)
        )
        assert len({id(replicas) for replicas in assigned}) <= count * max(1, count - 1)


def test_new_partitions_on_the_same_brokers_are_one_object() -> None:
    assigned = assign_replicas(brokers([None] * 3), 6000, 2)
    partitions = new_partitions(assigned)
    assert [each.replicas for each in partitions] == list(assigned)
    assert all(
        each == PartitionImage(each.replicas[0], 0, *[each.replicas] * 2) for each in partitions
    )
    assert len({id(each) for each in partitions}) == 6
