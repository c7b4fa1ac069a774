"""The server-side assignors: everything subscribed is assigned once, evenly, and little moves."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.groups.consumer.assignor_spec import Assignments, GroupSpec, MemberSpec
from kstore.broker.state.groups.consumer.assignors import ASSIGNORS
from kstore.broker.state.work import whole

T, U, V = (UUID(int=number) for number in (1, 2, 3))
TOPICS = (T, U, V)


def group(
    subscriptions: dict[str, tuple[UUID, ...]],
    partitions: dict[UUID, int],
    targets: Assignments | None = None,
    static: dict[str, str] | None = None,
) -> GroupSpec:
    members = {
        name: MemberSpec((static or {}).get(name), frozenset(topics), (targets or {}).get(name, {}))
        for name, topics in subscriptions.items()
    }
    return GroupSpec(members, partitions, len(set(map(frozenset, subscriptions.values()))) == 1)


def counts(assigned: Assignments) -> dict[str, int]:
    return {name: sum(map(len, topics.values())) for name, topics in assigned.items()}


def moved(before: Assignments, after: Assignments) -> int:
    """How many partitions a member that is still there lost."""
    return sum(
        len(partitions - after[name].get(topic, frozenset()))
        for name, topics in before.items()
        if name in after
        for topic, partitions in topics.items()
    )


subscriptions = st.dictionaries(
    st.sampled_from([f"m{index}" for index in range(6)]),
    st.sets(st.sampled_from(TOPICS)).map(lambda topics: tuple(sorted(topics))),
    min_size=1,
)
sizes = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})


@pytest.mark.parametrize("name", ASSIGNORS)
@given(before=subscriptions, after=subscriptions, partitions=sizes, later=sizes)
def test_every_subscribed_partition_has_one_subscriber_as_owner(
    name: str,
    before: dict[str, tuple[UUID, ...]],
    after: dict[str, tuple[UUID, ...]],
    partitions: dict[UUID, int],
    later: dict[UUID, int],
) -> None:
    assign = ASSIGNORS[name]
    grown = {topic: max(count, later[topic]) for topic, count in partitions.items()}
    first = whole(assign(group(before, partitions)))
    for subscribed, sizes_now, assigned in (
        (before, partitions, first),
        (after, grown, whole(assign(group(after, grown, first)))),
    ):
        assert assigned.keys() == subscribed.keys()
        owners = [
            (topic, partition)
            for member, topics in assigned.items()
            for topic, parts in topics.items()
            for partition in parts
            if topic in subscribed[member]
        ]
        wanted = {
            (topic, partition)
            for topic in {topic for topics in subscribed.values() for topic in topics}
            for partition in range(sizes_now[topic])
        }
        assert sorted(owners) == sorted(wanted)


@given(members=st.integers(1, 7), gone=st.integers(0, 3), new=st.integers(0, 3), partitions=sizes)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    members: int, gone: int, new: int, partitions: dict[UUID, int]
) -> None:
    assign = ASSIGNORS["uniform"]
    first = whole(assign(group({f"m{i}": TOPICS for i in range(members)}, partitions)))
    assert max(counts(first).values()) - min(counts(first).values()) <= 1
    names = [f"m{i}" for i in range(min(gone, members), members + new)]
    if not names:
        return
    second = whole(assign(group(dict.fromkeys(names, TOPICS), partitions, first)))
    assert max(counts(second).values()) - min(counts(second).values()) <= 1
    quota, extras = divmod(sum(partitions.values()), len(names))
    sizes_before = sorted((counts(first)[n] for n in names if n in first), reverse=True)
    limits = [quota + (index < extras) for index in range(len(sizes_before))]
    assert moved(first, second) == sum(
        max(size - limit, 0) for size, limit in zip(sizes_before, limits, strict=True)
    )
    assert whole(assign(group(dict.fromkeys(names, TOPICS), partitions, second))) == second


def test_uniform_takes_the_last_partitions_from_who_has_too_many() -> None:
    first = {"a": {T: frozenset(range(6))}}
    assigned = whole(ASSIGNORS["uniform"](group({"a": (T,), "b": (T,)}, {T: 6}, first)))
    assert assigned == {"a": {T: frozenset({0, 1, 2})}, "b": {T: frozenset({3, 4, 5})}}


def test_uniform_evens_out_unequal_subscriptions() -> None:
    subscribed = {"a": (T, U), "b": (T, U), "c": (U,)}
    assigned = whole(ASSIGNORS["uniform"](group(subscribed, {T: 4, U: 5})))
    assert sorted(counts(assigned).values()) == [3, 3, 3]


def test_uniform_moves_partitions_to_a_new_subscriber_of_one_topic() -> None:
    first = {"a": {T: frozenset(range(4)), U: frozenset(range(4))}}
    assigned = whole(ASSIGNORS["uniform"](group({"a": (T, U), "b": (U,)}, {T: 4, U: 4}, first)))
    assert assigned["a"][T] == frozenset(range(4))
    assert counts(assigned) == {"a": 4, "b": 4}


def test_range_gives_the_first_members_one_more() -> None:
    assigned = whole(ASSIGNORS["range"](group(dict.fromkeys("cab", (T,)), {T: 8})))
    assert {name: sorted(topics[T]) for name, topics in assigned.items()} == {
        "a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7],
    }  # fmt: skip


def test_range_is_co_partitioned_and_static_members_come_first() -> None:
    static = {"z1": "i0", "y1": "i1"}
    for ids in (static, {"a9": "i0", "b9": "i1"}):  # the same instances under other member ids
        members = dict.fromkeys(["m", *ids], (T, U))
        assigned = whole(ASSIGNORS["range"](group(members, {T: 6, U: 6}, static=ids)))
        ranges = {ids.get(name, name): topics for name, topics in assigned.items()}
        for topic in (T, U):
            shares = {name: sorted(topics[topic]) for name, topics in ranges.items()}
            assert shares == {"i0": [0, 1], "i1": [2, 3], "m": [4, 5]}


def test_range_gives_nothing_where_there_are_more_members_than_partitions() -> None:
    assigned = whole(ASSIGNORS["range"](group(dict.fromkeys("ab", (T,)), {T: 1})))
    assert assigned == {"a": {T: frozenset({0})}, "b": {}}
