"""SyncGroup, Heartbeat, LeaveGroup and the timers, as transcripts."""

from __future__ import annotations

import pytest

from kstore.broker.state.groups.classic.group import EMPTY, PREPARING_REBALANCE, STABLE
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.classic import GroupMetadataValue
from tests.plain_messages import Answer, Ask
from tests.reference.group_driver import GroupDriver, Parked


def joined_group(count: int, **settings: int) -> tuple[GroupDriver, list[str]]:
    """A group whose members have joined generation 1 and have not synced."""
    driver = GroupDriver(initial_rebalance_delay_ms=0, **settings)
    joins = [driver.join(version=3, rebalance_ms=9_000) for _ in range(count)]
    driver.advance(0)
    return driver, [joining.response.member_id for joining in joins]


def test_followers_wait_until_the_leader_brings_the_assignment() -> None:
    driver, (leader, follower) = joined_group(2)
    waiting = driver.sync(follower, 1)
    assert isinstance(waiting, Parked)
    assert driver.log[-1].value.generation == 0  # type: ignore[union-attr]
    answer = driver.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert answer.assignment == b"L"
    assert waiting.response == Answer.SyncGroup(
        protocol_type="consumer", protocol_name="range", assignment=b"F"
    )
    assert driver.sync(follower, 1) == waiting.response  # asked again: the same again


def test_a_member_that_the_leader_forgot_gets_nothing_and_no_error() -> None:
    driver, (leader, follower) = joined_group(2)
    driver.sync(leader, 1, {leader: b"L", "stranger": b"S"})
    assert driver.sync(follower, 1) == Answer.SyncGroup(
        protocol_type="consumer", protocol_name="range"
    )


def test_a_sync_names_group_generation_member_and_protocol_rightly_or_fails() -> None:
    driver, (leader,) = joined_group(1)

    def error(**changes: object) -> int:
        fields: dict[str, object] = {"group_id": "g", "member_id": leader, "generation_id": 1}
        request = Ask.SyncGroup(**{**fields, **changes})  # type: ignore[arg-type]
        return int(driver.send(request).error_code)

    assert error(group_id="") == ErrorCode.INVALID_GROUP_ID
    assert error(group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(member_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert error(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(protocol_name="sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(group_instance_id="s") == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(protocol_type="consumer", protocol_name="range") == ErrorCode.NONE


def test_members_that_joined_and_do_not_sync_are_out_after_the_rebalance_timeout() -> None:
    driver, (leader, follower) = joined_group(2)
    waiting = driver.sync(follower, 1)
    driver.advance(8_999)
    assert waiting.response is None
    driver.advance(1)
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.join(member_id=follower).leader == follower


def test_a_stable_group_loses_members_that_never_synced() -> None:
    driver, (leader, follower) = joined_group(2)
    driver.sync(leader, 1, {leader: b"L"})
    driver.advance(8_999)
    driver.heartbeat(leader, 1)
    driver.heartbeat(follower, 1)
    driver.advance(1)
    assert driver.shard.groups["g"].state == PREPARING_REBALANCE
    assert driver.shard.groups["g"].members.keys() == {leader}


def test_a_heartbeat_names_member_and_generation_rightly_or_fails() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group()
    assert driver.heartbeat(member, 1) == ErrorCode.NONE
    assert driver.heartbeat(member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("ghost", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.send(Ask.Heartbeat()).error_code == ErrorCode.INVALID_GROUP_ID
    other = Ask.Heartbeat(group_id="none", member_id=member, generation_id=1)
    assert driver.send(other).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_silence_removes_it() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(session_ms=10_000)
    for _ in range(5):
        driver.advance(9_999)
        assert driver.heartbeat(member, 1) == ErrorCode.NONE
        assert driver.quick["HeartbeatRequest"], "it is answered without work"
    driver.advance(10_000)
    assert driver.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.shard.groups["g"].state == EMPTY
    value = driver.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol, value.leader, value.members) == (2, None, None, [])
    assert value.protocol_type == "consumer"


def test_who_waits_for_the_group_needs_no_heartbeat() -> None:
    driver = GroupDriver()
    first, second = driver.stable_group(2, session_ms=10_000, rebalance_ms=60_000)
    waiting = driver.join(member_id=first, session_ms=10_000, rebalance_ms=60_000)
    for _ in range(5):
        driver.advance(9_000)
        assert driver.heartbeat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.response is None
    driver.advance(10_000)
    assert [member.member_id for member in waiting.response.members] == [first]


def test_leaving_makes_the_others_rebalance_at_once() -> None:
    driver = GroupDriver()
    first, second = driver.stable_group(2)
    assert driver.leave((first, None)) == Answer.LeaveGroup(
        members=[{"member_id": first, "group_instance_id": None}]
    )
    assert driver.heartbeat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(member_id=second).leader == second


def test_the_last_one_to_leave_leaves_an_empty_group_in_the_log() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group()
    driver.leave((member, None))
    assert driver.shard.groups["g"].state == EMPTY
    (record,) = driver.last_records
    assert isinstance(record.value, GroupMetadataValue)
    assert record.value.members == []


def test_each_member_to_leave_has_its_own_answer() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=100)
    static = driver.join(instance="s1")
    driver.advance(100)
    driver.sync("s1-1", 1, {}, instance="s1")
    pending = driver.join().member_id
    assert static.response.member_id == "s1-1"
    answer = driver.leave(
        ("ghost", None), ("", "unknown"), ("", None), ("x", "s1"), (pending, None), ("", "s1")
    )
    assert [(item.member_id, item.error_code) for item in answer.members] == [
        ("ghost", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", ErrorCode.FENCED_INSTANCE_ID),
        (pending, ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ]
    assert driver.shard.groups["g"].state == EMPTY


def test_leaving_a_group_that_is_not_there_fails_for_each_member() -> None:
    driver = GroupDriver()
    request = Ask.LeaveGroup(group_id="none", members=[{"member_id": "m"}])
    answer = driver.send(request)
    assert answer.error_code == ErrorCode.NONE
    assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    no_group = Ask.LeaveGroup(members=[{"member_id": "m"}])
    assert driver.send(no_group).error_code == ErrorCode.INVALID_GROUP_ID


def test_who_leaves_while_parked_is_answered() -> None:
    driver = GroupDriver()
    first, second = driver.stable_group(2)
    waiting = driver.join(member_id=first)
    driver.leave((first, None))
    assert waiting.response == Answer.JoinGroup(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    driver.join(member_id=second)
    waiting = driver.sync(second, 1)
    assert waiting.error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("leaver", [0, 1])
def test_leaving_between_join_and_sync_starts_over(leaver: int) -> None:
    driver, members = joined_group(2)
    waiting = driver.sync(members[1], 1)
    driver.leave((members[leaver], None))
    stayed = members[1 - leaver]
    if leaver == 1:
        assert waiting.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(member_id=stayed).generation_id == 2


class TestRestart:
    def test_members_go_on_where_they_were(self) -> None:
        driver = GroupDriver()
        first, second = driver.stable_group(2)
        driver.restart()
        assert driver.shard.groups["g"].state == STABLE
        assert driver.heartbeat(first, 1) == ErrorCode.NONE
        assert driver.sync(second, 1).assignment == b"a-" + second.encode()

    def test_members_that_do_not_come_back_are_out(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable_group(session_ms=10_000)
        driver.restart()
        driver.advance(10_000)
        assert driver.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.shard.groups["g"].generation_id == 2

    def test_a_join_phase_is_not_remembered_and_members_come_again(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable_group()
        newcomer = driver.join().member_id
        driver.join(member_id=newcomer)
        driver.restart()
        assert driver.join(member_id=newcomer).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.join(member_id=member).generation_id == 2

    def test_a_group_over_a_limit_that_was_lowered_rebalances(self) -> None:
        driver = GroupDriver()
        driver.stable_group(3)
        driver.shard.settings = driver.shard.settings._replace(max_size=2)
        driver.restart()
        assert driver.shard.groups["g"].state == PREPARING_REBALANCE


def test_a_shard_that_is_given_up_answers_everybody_who_waits() -> None:
    driver, (leader, follower) = joined_group(2)
    waiting = driver.sync(follower, 1)
    joining = driver.join(group_id="h", version=3)
    answers = dict(driver.shard.unloaded())
    assert answers[waiting].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    assert answers[joining].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    assert leader != follower


def test_a_follower_is_decided_without_work() -> None:
    driver = GroupDriver()
    leader, second, third = driver.stable_group(3)
    joins = [driver.join(member_id=member) for member in (leader, second, third)]
    assert [join.response.generation_id for join in joins[:2]] == [2, 2]
    driver.quick.clear()
    waiting = driver.sync(second, 2)
    assert isinstance(waiting, Parked)
    assert driver.quick["SyncGroupRequest"] == 1
    driver.sync(leader, 2, {leader: b"1", second: b"2", third: b"3"})
    assert waiting.response.assignment == b"2"
    assert driver.quick["SyncGroupRequest"] == 1, "the leader gives all their assignments"
    assert ("sync", "g") in driver.timers
    assert driver.sync(third, 2).assignment == b"3"
    assert driver.quick["SyncGroupRequest"] == 2
    assert ("sync", "g") not in driver.timers, "all have synced"
