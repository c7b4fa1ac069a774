"""The assignor of share groups: what always holds, and the counts of a Kafka 4.3.1."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.groups.share.assignor import assign
from kstore.broker.state.work import whole

TOPICS = [UUID(int=number) for number in range(1, 4)]
Target = dict[UUID, frozenset[int]]

members = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(9)]),
    st.sets(st.sampled_from(TOPICS)).map(frozenset),
    min_size=1,
)
partitions = st.dictionaries(
    st.sampled_from(TOPICS), st.sets(st.integers(0, 6), min_size=1).map(frozenset)
)
previous = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(11)]),
    st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 8)).map(frozenset)),
)


@given(members, partitions, previous)
def test_every_partition_is_shared_by_equally_many_members_that_have_equally_many(
    subscriptions: dict[str, frozenset[UUID]],
    there: dict[UUID, frozenset[int]],
    had: dict[str, Target],
) -> None:
    targets = whole(assign(subscriptions, there, had))
    assert targets.keys() == subscriptions.keys()
    for member_id, target in targets.items():
        for topic_id, given_ in target.items():
            assert topic_id in subscriptions[member_id]
            assert given_
            assert given_ <= there[topic_id]
    alike = len(set(subscriptions.values())) == 1
    for topic_id in there:
        subscribers = [each for each, topics in subscriptions.items() if topic_id in topics]
        shared = Counter(p for target in targets.values() for p in target.get(topic_id, ()))
        if not subscribers:
            assert not shared
            continue
        assert shared.keys() == set(there[topic_id]), "a partition that nobody has"
        assert len(set(shared.values())) == 1
        counts = [len(targets[each].get(topic_id, ())) for each in subscribers]
        if not alike:
            assert max(counts) - min(counts) <= 1
            assert min(counts) >= min(1, len(there[topic_id]) // len(subscribers))
    if alike:
        sizes = [sum(map(len, target.values())) for target in targets.values()]
        assert max(sizes) - min(sizes) <= 1


@given(members, partitions, previous)
def test_what_is_balanced_stays_as_it_is(
    subscriptions: dict[str, frozenset[UUID]],
    there: dict[UUID, frozenset[int]],
    had: dict[str, Target],
) -> None:
    once = whole(assign(subscriptions, there, had))
    assert whole(assign(subscriptions, there, once)) == once


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [3]), (2, [1, 2]), (3, [1, 1, 1]), (4, [1, 1, 2, 2]), (5, [1, 1, 1, 1, 2]),
     (6, [1] * 6), (7, [1, 1, 1, 1, 1, 2, 2]), (8, [1] * 7 + [2])],
)  # fmt: skip
def test_three_partitions_are_shared_as_kafka_shares_them(count: int, sizes: list[int]) -> None:
    """The sizes are those of a running Kafka 4.3.1."""
    topic = TOPICS[0]
    subscriptions = {f"m{number}": frozenset({topic}) for number in range(count)}
    targets = whole(assign(subscriptions, {topic: frozenset(range(3))}, {}))
    assert sorted(len(target.get(topic, ())) for target in targets.values()) == sizes


def test_who_joins_takes_as_few_partitions_as_it_needs_from_others() -> None:
    topic = TOPICS[0]
    subscriptions = {name: frozenset({topic}) for name in "ab"}
    before = whole(assign(subscriptions, {topic: frozenset(range(6))}, {}))
    subscriptions["c"] = frozenset({topic})
    after = whole(assign(subscriptions, {topic: frozenset(range(6))}, before))
    assert all(after[name][topic] < before[name][topic] for name in "ab")
    assert [len(after[name][topic]) for name in "abc"] == [2, 2, 2]
