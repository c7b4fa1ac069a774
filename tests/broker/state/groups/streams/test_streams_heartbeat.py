"""A streams group step by step: the exact answers, and the exact records where they matter."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.streams.group import MemberState, StreamsGroup
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.streams import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from kstore.protocol.groups.streams_groups import StreamsGroupHeartbeatRequestEndpoint
from tests.reference.group_driver import GroupDriver
from tests.reference.streams_members import StreamsClient, subtopology, topology

ONE = topology(subtopology("0", "lines"))
DELAY_MS, INTERVAL_MS, SESSION_MS = 3000, 1000, 45_000
BEHIND_MS = 500_000
"""How far a clock was set back."""
DELAYED, SHUTDOWN, STALE = 5, 4, 0


@pytest.fixture
def driver() -> GroupDriver:
    made = GroupDriver()
    made.topic("lines", 4)
    return made


def group_of(driver: GroupDriver) -> StreamsGroup:
    group = driver.shard.groups["g"]
    assert isinstance(group, StreamsGroup)
    return group


def stable(driver: GroupDriver, *names: str) -> list[StreamsClient]:
    """Members that have their tasks."""
    members = [StreamsClient(driver, name, ONE) for name in names]
    for member in members:
        member.join()
    for _ in range(4):
        driver.advance(DELAY_MS)
        for member in members:
            assert member.beat().error_code == 0
    assert group_of(driver).state == "Stable"
    return members


def codes(answer: Any) -> list[int]:
    return [status.status_code for status in answer.status]


def records(driver: GroupDriver) -> list[str]:
    return [type(record.key).__name__.removesuffix("Key") for record in driver.last_records]


def test_the_first_join_writes_member_topology_epoch_and_its_empty_assignment(
    driver: GroupDriver,
) -> None:
    answer = StreamsClient(driver, "m", ONE).join()
    assert records(driver) == [
        "StreamsGroupMemberMetadata",
        "StreamsGroupTopology",
        "StreamsGroupMetadata",
        "StreamsGroupCurrentMemberAssignment",
    ]
    assert (answer.member_epoch, answer.active_tasks, codes(answer)) == (1, [], [DELAYED])
    assert group_of(driver).state == "Assigning"


def test_the_first_assignment_waits_for_the_delay_and_for_all_who_join_in_it(
    driver: GroupDriver,
) -> None:
    one, two = (StreamsClient(driver, name, ONE) for name in ("one", "two"))
    one.join()
    driver.advance(DELAY_MS - 1)
    assert codes(two.join()) == [DELAYED]
    driver.advance(1)
    # Kafka builds the group's soft state again after the first heartbeat, so one more is needed.
    one.beat()
    two.beat()
    assert len(one.active) == len(two.active) == 2


def test_a_heartbeat_that_changes_nothing_writes_nothing(driver: GroupDriver) -> None:
    (member,) = stable(driver, "m")
    answer = member.beat()
    assert records(driver) == []
    assert answer.active_tasks is None
    assert answer.status == []


def test_a_task_moves_in_three_steps(driver: GroupDriver) -> None:
    (one,) = stable(driver, "one")
    two = StreamsClient(driver, "two", ONE)
    epoch = one.epoch
    driver.advance(INTERVAL_MS)
    two.join()
    assert two.active == set()
    assert group_of(driver).members["two"].state == MemberState.UNRELEASED_TASKS
    one.beat(tell=False)  # it must give up two
    assert (one.epoch, len(one.active)) == (epoch, 2)
    topic_id = driver.image.topics["lines"].topic_id
    owned = {
        name: [p for p in range(5) if group_of(driver).owns(name, "lines", topic_id, p)]
        for name in ("one", "two", "three")
    }
    assert owned == {"one": [0, 1, 2, 3], "two": [], "three": []}
    assert not group_of(driver).owns("one", "words", topic_id, 0)
    assert two.beat().active_tasks is None
    one.beat()  # says that it has
    assert one.epoch == epoch + 1
    two.beat()
    assert (two.epoch, len(two.active)) == (epoch + 1, 2)
    assert group_of(driver).state == "Stable"
    member = group_of(driver).members["one"]
    assert set(member.assigned.active.values()) == {epoch}


def test_a_clock_that_is_behind_holds_up_no_assignment(driver: GroupDriver) -> None:
    stable(driver, "one")
    epoch = group_of(driver).group_epoch
    driver.now_ms -= BEHIND_MS
    StreamsClient(driver, "two", ONE).join()
    assert (group_of(driver).group_epoch, group_of(driver).assignment_epoch) == (
        epoch + 1,
        epoch + 1,
    )


def test_who_does_not_give_up_its_tasks_in_time_is_removed(driver: GroupDriver) -> None:
    (one,) = stable(driver, "one")
    driver.advance(INTERVAL_MS)
    two = StreamsClient(driver, "two", ONE)
    two.join()
    one.beat(tell=False)
    for _ in range(4):  # its heartbeats continue, for its rebalance timeout of 60 s
        driver.advance(15_000)
        one.beat(tell=False)
        two.beat()
    assert one.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(INTERVAL_MS)
    two.beat()
    assert len(two.active) == 4


def test_who_is_silent_for_its_session_is_removed(driver: GroupDriver) -> None:
    one, two = stable(driver, "one", "two")
    driver.advance(SESSION_MS - 1)
    two.beat()
    driver.advance(1)
    assert records(driver) == [
        "StreamsGroupCurrentMemberAssignment",
        "StreamsGroupTargetAssignmentMember",
        "StreamsGroupMemberMetadata",
        "StreamsGroupMetadata",
    ]
    two.beat()
    assert len(two.active) == 4
    assert one.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_answer_is_told_again(driver: GroupDriver) -> None:
    (member,) = stable(driver, "m")
    driver.topic("lines", 5)
    driver.advance(INTERVAL_MS)
    member.beat(lost=True)
    assert len(member.active) == 4
    member.beat()
    assert len(member.active) == 5
    assert member.beat().active_tasks is None


@pytest.mark.parametrize("epoch", [-1, 1], ids=["two epochs behind", "ahead"])
def test_a_wrong_epoch_is_fenced(driver: GroupDriver, epoch: int) -> None:
    (member,) = stable(driver, "m")
    driver.topic("lines", 5)
    driver.advance(INTERVAL_MS)
    member.beat()
    driver.topic("lines", 6)
    driver.advance(INTERVAL_MS)
    member.beat()
    member.epoch += 1 if epoch > 0 else -2
    assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_older_topology_is_stale_and_a_newer_one_is_refused(driver: GroupDriver) -> None:
    told = topology(subtopology("0", "lines"), epoch=3)
    StreamsClient(driver, "first", told).join()
    driver.advance(DELAY_MS)
    older = StreamsClient(driver, "older", ONE)
    assert STALE in codes(older.join())
    newer = StreamsClient(driver, "newer", topology(subtopology("0", "lines"), epoch=4))
    assert newer.join().error_code == ErrorCode.INVALID_REQUEST


def test_a_shutdown_is_told_to_all_until_the_group_is_empty(driver: GroupDriver) -> None:
    one, two = stable(driver, "one", "two")
    assert SHUTDOWN in codes(one.beat(shutdown_application=True))
    answer = two.beat()
    assert "Member one " in answer.status[0].status_detail
    one.leave()
    two.leave()
    assert group_of(driver).soft.shutdown_member_id is None
    assert SHUTDOWN not in codes(two.join())


def test_endpoints_are_told_when_what_is_there_changes(driver: GroupDriver) -> None:
    where = StreamsGroupHeartbeatRequestEndpoint(host="app", port=8080)
    one, two = StreamsClient(driver, "one", ONE), StreamsClient(driver, "two", ONE)
    one.join(user_endpoint=where)
    two.join()
    for _ in range(3):
        driver.advance(DELAY_MS)
        one.beat()
        two.beat()
    answer = two.beat(endpoint_information_epoch=-1)
    (row,) = answer.partitions_by_user_endpoint
    assert (row.user_endpoint.host, row.user_endpoint.port) == ("app", 8080)
    (partitions,) = row.active_partitions
    assert partitions.topic == "lines"
    assert {("0", part) for part in partitions.partitions} == one.active
    known = answer.endpoint_information_epoch
    assert two.beat(endpoint_information_epoch=known).partitions_by_user_endpoint is None


def test_a_full_group_takes_nobody(driver: GroupDriver) -> None:
    full = GroupDriver(streams_max_size=1)
    full.topic("lines", 4)
    stable(full, "one")
    answer = StreamsClient(full, "two", ONE).join()
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_in_a_state_of_a_newer_coordinator_begins_anew(driver: GroupDriver) -> None:
    (member,) = stable(driver, "m")
    key = StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = StreamsGroupCurrentMemberAssignmentValue(member_epoch=member.epoch, state=99)
    driver.log.append(GroupRecord(key, value))
    driver.restart()
    assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    member.join()
    driver.advance(INTERVAL_MS)
    member.beat()
    assert len(member.active) == 4


def test_records_of_before_the_assignment_epochs_count_from_the_members_epoch(
    driver: GroupDriver,
) -> None:
    (member,) = stable(driver, "m")
    (last,) = [
        record
        for record in driver.log[-3:]
        if isinstance(record.value, StreamsGroupCurrentMemberAssignmentValue)
    ][-1:]
    assert isinstance(last.value, StreamsGroupCurrentMemberAssignmentValue)
    for entry in last.value.active_tasks:
        assert entry.assignment_epochs is not None
        entry.assignment_epochs = None
    driver.restart()
    epochs = group_of(driver).members["m"].assigned.active.values()
    assert set(epochs) == {member.epoch}
