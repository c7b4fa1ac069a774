"""Live groups that change between the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kstore.broker.state.groups.classic.group import PREPARING_REBALANCE, ClassicGroup
from kstore.broker.state.groups.classic.group import STABLE as CLASSIC_STABLE
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.errors import ErrorCode
from kstore.protocol.groups.consumer_protocol import ConsumerProtocolAssignment
from tests.reference.consumer_driver import ConsumerDriver, assignment, owned_of, subscription


def assigned(data: bytes) -> list[int]:
    value = ConsumerProtocolAssignment.decode(data, 1, offset=2)
    return [index for row in value.assigned_partitions for index in row.partitions]


class Classic:
    """A member of the classic protocol, alone in generation 1 with partitions 0 to 3."""

    def __init__(self, driver: ConsumerDriver, given: bytes = assignment(0, 1, 2, 3)) -> None:
        self.driver = driver
        self.topic: UUID = driver.topic("t", 4)
        self.member_id: str = driver.join(protocols=subscription()).member_id
        parked = driver.join(member_id=self.member_id, protocols=subscription())
        driver.advance(3000)
        self.generation_id: int = parked.response.generation_id
        self.sync(given)

    def sync(self, given: bytes | None = None) -> Any:
        assignments = None if given is None else {self.member_id: given}
        return self.driver.sync(self.member_id, self.generation_id, assignments)

    def rejoin(self, *owned: int) -> Any:
        joined = self.driver.join(member_id=self.member_id, protocols=subscription(*owned))
        if getattr(joined, "error_code", None) == 0:
            self.generation_id = joined.generation_id
        return joined

    def heartbeat(self) -> int:
        return self.driver.heartbeat(self.member_id, self.generation_id)


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


def test_a_consumer_joins_a_classic_group_and_the_partitions_are_shared(
    driver: ConsumerDriver,
) -> None:
    classic = Classic(driver)
    joined = driver.enter("new", "t")
    assert (joined.error_code, joined.member_epoch, owned_of(joined)) == (0, 2, {})
    assert isinstance(driver.shard.groups["g"], ConsumerGroup)
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.rejoin(0, 1, 2, 3).generation_id == 1
    assert assigned(classic.sync().assignment) == [0, 1]
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.rejoin(0, 1).generation_id == 2
    assert assigned(classic.sync().assignment) == [0, 1]
    assert classic.heartbeat() == ErrorCode.NONE
    assert owned_of(driver.beat("new", 2)) == {classic.topic: [2, 3]}


def test_a_classic_member_commits_with_its_generation(driver: ConsumerDriver) -> None:
    classic = Classic(driver)
    driver.enter("new", "t")
    assert driver.commit(classic.member_id, 1, "t", 0, 3, version=7) == [0, 0]
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(classic.member_id, 2, "t", 0, version=7) == [illegal]
    classic.rejoin(0, 1)
    assert driver.commit(classic.member_id, 1, "t", 0, version=7) == [0]
    assert driver.commit(classic.member_id, 1, "t", 3, version=7) == [illegal]


def test_who_waits_in_a_rebalance_is_told_to_come_again(driver: ConsumerDriver) -> None:
    classic = Classic(driver)
    other = driver.join(protocols=subscription()).member_id
    parked = driver.join(member_id=other, protocols=subscription())
    assert driver.shard.groups["g"].state == PREPARING_REBALANCE
    driver.enter("new", "t")
    assert parked.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group.members.keys() == {classic.member_id, other, "new"}


def test_the_last_consumer_leaves_and_the_group_is_classic_again(driver: ConsumerDriver) -> None:
    classic = Classic(driver)
    driver.enter("new", "t")
    classic.rejoin(0, 1)
    classic.rejoin(0, 1)
    driver.beat("new", -1)
    group = driver.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation_id) == (PREPARING_REBALANCE, 2)
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.rejoin(0, 1).generation_id == 3
    driver.restart()
    assert isinstance(driver.shard.groups["g"], ClassicGroup)


def test_a_silent_consumer_leads_back_too(driver: ConsumerDriver) -> None:
    classic = Classic(driver)
    driver.enter("new", "t")
    for _ in range(4):
        driver.advance(9000)
        assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(9000)
    assert isinstance(driver.shard.groups["g"], ClassicGroup)


def test_a_classic_member_that_does_not_rejoin_is_removed(driver: ConsumerDriver) -> None:
    classic = Classic(driver)
    driver.enter("new", "t")
    for _ in range(9):
        classic.heartbeat()
        driver.beat("new", driver.group.members["new"].epoch)
        driver.advance(8000)
    assert driver.group.members.keys() == {"new"}


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_policy_says_which_way_is_open(policy: str, up: bool, down: bool) -> None:
    driver = ConsumerDriver(consumer_migration_policy=policy)
    Classic(driver)
    refused = ErrorCode.NONE if up else ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.enter("new", "t").error_code == refused
    if up:
        driver.beat("new", -1)
        assert isinstance(driver.shard.groups["g"], ClassicGroup) == down
    other = ConsumerDriver(consumer_migration_policy=policy)
    other.topic("t", 1)
    other.enter("new", "t")
    code = other.join(protocols=subscription()).error_code
    denied = policy == "disabled"
    wanted = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if denied else ErrorCode.MEMBER_ID_REQUIRED
    assert code == wanted


@pytest.mark.parametrize("given", [b"\x00", assignment(0, user_data=b"custom")])
def test_what_can_not_be_taken_along_stops_the_upgrade(
    driver: ConsumerDriver, given: bytes
) -> None:
    Classic(driver, given)
    assert driver.enter("new", "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.shard.groups["g"].state == CLASSIC_STABLE


def test_an_empty_group_changes_its_kind_with_the_next_member(driver: ConsumerDriver) -> None:
    driver.topic("t", 1)
    driver.enter("a", "t")
    driver.commit("a", 2, "t", 0)
    driver.beat("a", -1)
    assert driver.join(protocols=subscription()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert isinstance(driver.shard.groups["g"], ClassicGroup)
    driver.restart()
    assert isinstance(driver.shard.groups["g"], ClassicGroup)
    assert driver.shard.offsets.get("g", "t", 0) is not None
    assert driver.enter("a", "t").member_epoch == 2
    assert isinstance(driver.shard.groups["g"], ConsumerGroup)


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(
    driver: ConsumerDriver,
) -> None:
    topic = driver.topic("t", 2)
    driver.enter("a", "t", instance_id="i")
    joined = driver.join(instance="i", protocols=subscription(0, 1))
    assert joined.error_code == 0
    group = driver.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    (member,) = group.members.values()
    assert (member.member_id, assigned(member.assignment)) == (joined.member_id, [0, 1])
    back = driver.enter("b", "t", instance_id="i")
    assert owned_of(back) == {topic: [0, 1]}
