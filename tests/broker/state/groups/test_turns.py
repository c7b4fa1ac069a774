"""Decisions on large groups are done in pieces of few rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import pytest

from kstore.broker.state.groups.classic.step import Step
from kstore.broker.state.groups.consumer import uniform_assignor
from kstore.broker.state.groups.consumer.assignor_spec import GroupSpec, MemberSpec
from kstore.broker.state.groups.consumer.assignors import ASSIGNORS
from kstore.broker.state.groups.coordinator import admin
from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard
from kstore.broker.state.groups.streams import assignor
from kstore.broker.state.groups.streams.assignor import MemberSpec as StreamsSpec
from kstore.broker.state.groups.streams.assignor import assign_tasks
from kstore.broker.state.groups.streams.tasks import NO_TASKS
from kstore.broker.state.work import ROWS_BETWEEN, Work
from kstore.protocol.groups.offsets import OffsetFetchRequestGroup
from tests.plain_messages import Ask
from tests.reference.group_driver import GroupDriver

T = TypeVar("T")
MEMBERS = 300
OFFSETS = 3000
TOPIC = UUID(int=7)
WEEK_MS = 7 * 24 * 3600 * 1000


class Counter:
    """How often something is called between two turns of others, at most."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    def count(self, function: Callable[..., T]) -> Callable[..., T]:
        """The function, whose calls count."""

        def counted(*given: Any, **named: Any) -> T:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)
            return function(*given, **named)

        return counted

    def whole(self, work: Work[T]) -> T:
        while True:
            self.now = 0
            try:
                next(work)
            except StopIteration as done:
                return done.value


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Counts in all work of a driver's shard."""
    from tests.reference import group_driver

    counter = Counter()
    monkeypatch.setattr(group_driver, "whole", counter.whole)
    return counter


@pytest.mark.slow
def test_the_members_of_a_classic_group_are_answered_one_by_one(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("answer_join", "answer_sync", "expect_heartbeat"):
        monkeypatch.setattr(Step, name, counter.count(getattr(Step, name)))
    members = GroupDriver().stable_group(MEMBERS)
    assert counter.total > 4 * len(members)
    assert counter.most <= 4


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("homogeneous", [True, False])
def test_partitions_are_assigned_member_by_member(
    name: str, homogeneous: bool, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uniform_assignor, "_kept", counter.count(uniform_assignor._kept))
    topics = frozenset({TOPIC})
    members = {f"m{number}": MemberSpec(None, topics, {}) for number in range(MEMBERS)}
    spec = GroupSpec(members, {TOPIC: 2 * MEMBERS}, homogeneous)
    turns = 0

    def counted() -> Work[Any]:
        nonlocal turns
        work = ASSIGNORS[name](spec)
        while True:
            try:
                next(work)
            except StopIteration as done:
                return done.value
            turns += 1
            yield

    assigned = counter.whole(counted())
    assert {len(topics[TOPIC]) for topics in assigned.values()} == {2}
    assert turns >= MEMBERS
    assert counter.most <= 1


def test_tasks_are_assigned_one_by_one(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    add = assignor._Process.add_to_least_loaded
    monkeypatch.setattr(assignor._Process, "add_to_least_loaded", counter.count(add))
    members = {f"m{number}": StreamsSpec(f"p{number}", NO_TASKS) for number in range(MEMBERS)}

    class Stateful:
        tasks, is_stateful = 2 * MEMBERS, True

    assigned = counter.whole(assign_tasks(members, {"0": Stateful()}, 1))
    assert sum(len(tasks.active) for tasks in assigned.values()) == 2 * MEMBERS
    assert counter.total == 4 * MEMBERS
    assert counter.most <= 1


def committed() -> GroupDriver:
    driver = GroupDriver()
    partitions = [
        {"partition_index": number, "committed_offset": number} for number in range(OFFSETS)
    ]
    topic = {"name": "t", "topic_id": TOPIC, "partitions": partitions}
    driver.send(Ask.OffsetCommit(group_id="g", topics=[topic]))
    return driver


def test_records_are_taken_over_few_at_a_time(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupShard, "replay", counter.count(GroupShard.replay))
    driver = committed()
    assert counter.total == OFFSETS
    assert counter.most == ROWS_BETWEEN
    counter.most = 0
    driver.send(Ask.DeleteGroups(groups_names=["g"]))
    assert driver.shard.groups == {}
    assert counter.most == ROWS_BETWEEN


def test_all_offsets_of_a_group_are_told_one_by_one(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kstore.broker.state.groups import offsets

    monkeypatch.setattr(offsets, "_fetched", counter.count(offsets._fetched))
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    told = counter.whole(committed().shard.fetch_offsets(asked, require_stable=True))
    assert len(told.topics[0].partitions) == counter.total == OFFSETS
    assert counter.most == 1


@pytest.mark.parametrize("due", [True, False])
def test_offsets_expire_in_parts_between_which_others_decide(
    counter: Counter, monkeypatch: pytest.MonkeyPatch, due: bool
) -> None:
    monkeypatch.setattr(admin, "_is_over", counter.count(admin._is_over))
    driver = committed()
    driver.advance(WEEK_MS if due else 1)
    sizes = []
    counter.now = 0
    for part in driver.shard.expiry(driver.now_ms):
        sizes.append(len(part.records))
        counter.whole(driver.shard.take_over(part))
        counter.now = 0
    assert counter.most <= admin.MOST_LOOKED_AT
    assert len(sizes) >= OFFSETS // admin.MOST_LOOKED_AT
    assert sum(sizes) == (OFFSETS + 1 if due else 0)
    assert ("g" in driver.shard.groups) is not due


def test_an_offset_that_is_committed_between_two_parts_does_not_expire() -> None:
    driver = committed()
    driver.advance(WEEK_MS)
    parts = driver.shard.expiry(driver.now_ms)
    for number, part in enumerate(parts):
        for _ in driver.shard.take_over(part):
            pass
        if number == 0:
            last = {"partition_index": OFFSETS - 1, "committed_offset": 5}
            topic = {"name": "t", "topic_id": TOPIC, "partitions": [last]}
            driver.send(Ask.OffsetCommit(group_id="g", topics=[topic]))
    assert list(driver.shard.offsets.topics("g")["t"]) == [OFFSETS - 1]
    assert "g" in driver.shard.groups
