"""kstore.ordered.expansion: a new partition waits for commits of what was written before it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore.broker.state.groups.consumer.ordered_expansion import held_back
from kstore.broker.state.metadata.gates import UNKNOWN, TopicGates
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from tests.record_requests import commit_request
from tests.reference.consumer_driver import ConsumerDriver, owned_of

ON = {"kstore.ordered.expansion": "true"}
TOPIC = UUID(int=7)
Thresholds = dict[int, tuple[tuple[int, int], ...]]


class OrderedDriver(ConsumerDriver):
    """A group that reads one topic `t` with ordered expansion."""

    def topic_of(self, partitions: int, thresholds: Thresholds, topic_id: UUID = TOPIC) -> None:
        """Let the topic have partitions, and what is known of its expansions."""
        parts = tuple(PartitionImage(1, 0, (1,), (1,)) for _ in range(partitions))
        gates = {"t": TopicGates(topic_id, partitions, thresholds)}
        topic = TopicImage("t", topic_id, parts, ON)
        self.image = self.image.with_gates(gates).with_topics(topic)

    def reach(self, offsets: dict[int, int], **fields: Any) -> None:
        """Commit offsets, as an administrator or a member."""
        group = fields.pop("group_id", "g")
        request = commit_request("t", offsets, group, topic_id=TOPIC, **fields)
        answer = self.send(request, version=9)
        assert [row.error_code for row in answer.topics[0].partitions] == [0] * len(offsets)


@pytest.fixture
def driver() -> OrderedDriver:
    return OrderedDriver()


def as_member(member_id: str, epoch: int) -> dict[str, Any]:
    return {"member_id": member_id, "generation_id_or_member_epoch": epoch}


def test_a_new_partition_waits_until_the_others_are_read(driver: OrderedDriver) -> None:
    driver.topic_of(2, {})
    assert owned_of(driver.enter("a", "t")) == {TOPIC: [0, 1]}
    driver.topic_of(3, {2: ((0, 10), (1, 5))})
    response = driver.beat("a", 2)
    assert (response.member_epoch, response.assignment) == (2, None), "nothing has changed for it"
    driver.reach({0: 9, 1: 5}, **as_member("a", 2))
    assert driver.beat("a", 2).assignment is None
    driver.reach({0: 10}, **as_member("a", 2))
    response = driver.beat("a", 2)
    assert (response.member_epoch, owned_of(response)) == (3, {TOPIC: [0, 1, 2]})


def test_what_is_empty_needs_no_commit_and_what_is_unknown_holds(driver: OrderedDriver) -> None:
    driver.topic_of(3, {2: ((0, 0), (1, UNKNOWN))})
    assert owned_of(driver.enter("a", "t")) == {TOPIC: [0, 1]}
    driver.topic_of(3, {2: ((0, 0), (1, 0))})
    assert owned_of(driver.beat("a", 2)) == {TOPIC: [0, 1, 2]}


def test_a_partition_that_was_not_looked_at_yet_is_held_back(driver: OrderedDriver) -> None:
    driver.topic_of(2, {})
    driver.enter("a", "t")
    gates = driver.image.gates
    driver.topic_of(3, {})
    driver.image = driver.image.with_gates(gates)
    assert driver.beat("a", 2).assignment is None


def test_an_owned_partition_is_not_taken_away_again(driver: OrderedDriver) -> None:
    driver.topic_of(2, {1: ((0, 4),)})
    driver.reach({0: 4})
    assert owned_of(driver.enter("a", "t")) == {TOPIC: [0, 1]}
    driver.reach({0: 1}, **as_member("a", 2))
    assert driver.beat("a", 2).assignment is None
    driver.image = driver.image.with_gates({})
    assert driver.beat("a", 2).assignment is None
    assert driver.enter("b", "t").error_code == 0
    assert driver.group.target["b"] == {TOPIC: frozenset({1})}, "it moves, though"


def test_a_partition_that_the_group_has_read_from_stays_open(driver: OrderedDriver) -> None:
    driver.topic_of(2, {1: ((0, 4),)})
    driver.reach({0: 2, 1: 1})
    assert owned_of(driver.enter("a", "t")) == {TOPIC: [0, 1]}


def test_offsets_of_a_deleted_topic_open_nothing_of_its_successor(driver: OrderedDriver) -> None:
    driver.topic_of(2, {})
    driver.reach({0: 100, 1: 100})
    successor = UUID(int=8)
    driver.topic_of(2, {1: ((0, 4),)}, successor)
    assert owned_of(driver.enter("a", "t")) == {successor: [0]}


def test_other_topics_are_not_held_back(driver: OrderedDriver) -> None:
    driver.image = driver.image.with_gates({})
    other = driver.topic("other", 3)
    assert owned_of(driver.enter("a", "other")) == {other: [0, 1, 2]}


def test_a_timer_sees_what_requests_see(driver: OrderedDriver) -> None:
    driver.topic_of(2, {})
    driver.enter("a", "t")
    driver.enter("b", "t")
    driver.topic_of(3, {2: ((0, 10),)})
    driver.beat("a", 2)
    driver.beat("a", 2, {TOPIC: [0]})
    driver.advance(44_000)
    driver.beat("a", 3)
    driver.advance(2_000)  # b is gone
    assert set(driver.group.members) == {"a"}
    driver.beat("a", driver.group.members["a"].epoch)
    assert driver.group.target["a"] == {TOPIC: frozenset({0, 1})}


offsets = st.integers(0, 4)
expansions = st.lists(st.tuples(st.integers(1, 2), st.lists(offsets, min_size=6)), max_size=3)


@given(
    grown=expansions,
    commits=st.lists(st.tuples(st.integers(0, 7), offsets), max_size=20),
    looked_at=st.integers(0, 8),
)
@settings(max_examples=150, deadline=None)
def test_open_partitions_are_those_whose_priors_were_all_read(
    grown: list[tuple[int, list[int]]], commits: list[tuple[int, int]], looked_at: int
) -> None:
    driver = OrderedDriver()
    count = 2
    thresholds: Thresholds = {}
    for more, ends in grown:
        row = tuple((prior, ends[prior % len(ends)]) for prior in range(count))
        thresholds |= dict.fromkeys(range(count, count + more), row)
        count += more
    driver.topic_of(count, thresholds)
    reached: dict[int, int] = {}
    seen = 0
    for place, offset in [*commits, (0, 4)]:
        index = place % count
        if index in driver.image.gates["t"].thresholds and index >= seen:
            continue  # nobody reads what is held back
        driver.reach({index: offset})
        reached[index] = offset
        image = driver.image
        seen = count - len(held_back(driver.shard, "g", image, image.topics["t"]))
        for index in range(seen):
            for prior, end in thresholds.get(index, ()):
                assert reached.get(prior, 0) >= end or reached.get(index, 0) > 0
        if seen < count:
            assert reached.get(seen, 0) == 0
            assert any(reached.get(prior, 0) < end for prior, end in thresholds[seen])
    less = min(looked_at, count)
    looked_at_rows = {i: row for i, row in thresholds.items() if i < less}
    gates = {"t": TopicGates(TOPIC, less, looked_at_rows)}
    driver.image = driver.image.with_gates(gates)
    known = count - len(held_back(driver.shard, "g", driver.image, driver.image.topics["t"]))
    assert known <= max(seen, less)
