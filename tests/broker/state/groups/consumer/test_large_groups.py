"""The cost of a join in a large consumer group, in assignments and visited members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kstore.broker.state.groups.consumer.member import Member
from kstore.broker.state.groups.consumer.step import ROWS_PER_MS
from kstore.broker.state.groups.consumer.subscriptions import Subscriptions
from tests.reference.consumer_driver import ConsumerDriver

MEMBERS = 300
PARTITIONS = 300


class Watched(dict[str, Member]):
    """Members; counts how often all of them are read."""

    looks = 0

    def values(self) -> Any:
        self.looks += 1
        return super().values()

    def items(self) -> Any:
        self.looks += 1
        return super().items()

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()


@pytest.mark.slow
def test_many_joins_at_once_lead_to_few_assignments_without_an_interval() -> None:
    driver = ConsumerDriver()
    driver.topic("t", PARTITIONS)
    computed = set()
    for number in range(MEMBERS):
        driver.enter(f"m{number:03}", "t")
        computed.add(driver.group.assignment_epoch)
    group = driver.group
    assert 10 < len(computed) < MEMBERS // 4  # as long as it is small each change counts at once
    assert group.epoch == MEMBERS + 1 > group.assignment_epoch
    driver.advance(MEMBERS * (MEMBERS + PARTITIONS) // ROWS_PER_MS)
    driver.beat("m000", group.members["m000"].epoch)
    assert group.assignment_epoch == group.epoch
    assert all(len(target) == 1 for target in group.target.values())
    assert sum(len(each) for part in group.target.values() for each in part.values()) == PARTITIONS


@pytest.mark.slow
def test_a_join_between_two_assignments_looks_at_no_other_member() -> None:
    driver = ConsumerDriver()
    driver.shard.settings = driver.shard.settings._replace(check_invariants=False)
    driver.topic("t", PARTITIONS)
    for number in range(100):
        driver.enter(f"m{number:03}", "t")
    group = driver.group
    group.members = members = Watched(group.members)
    epoch = group.epoch
    driver.enter("late", "t")
    assert (group.epoch, members.looks) == (epoch + 1, 0)
    assert group.subscriptions.homogeneous


def test_subscriptions_are_counted() -> None:
    a, b = Member("a", topics=frozenset(("t",))), Member("b", topics=frozenset(("t", "u")))
    c = Member("c", regex="x.*")
    found = Subscriptions().after((), [a, a, b, c])
    assert (found.named, found.regexes) == ({"t", "u"}, {"x.*"})
    assert (found.having("x.*"), found.having("y"), found.homogeneous) == (1, 0, False)
    assert found.after([b, c]).homogeneous
    assert found.after([b], [b]) == found
    assert found.after([b]).named == {"t"}
    assert found.names("u")
    assert not found.after([b]).names("u")
    both = Member("d", topics=frozenset(("t",)), regex="x.*")
    assert not Subscriptions().after((), [both]).homogeneous
