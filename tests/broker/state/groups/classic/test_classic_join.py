"""JoinGroup as a transcript: what is asked, the exact answer, the exact records."""

from __future__ import annotations

from kstore.broker.state.groups.classic.group import EMPTY, PREPARING_REBALANCE, STABLE
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.classic import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from tests.plain_messages import Answer
from tests.reference.group_driver import GroupDriver, Parked


def test_a_group_forms_a_member_id_is_asked_for_first() -> None:
    driver = GroupDriver()

    assert driver.join() == Answer.JoinGroup(
        member_id="c-1", error_code=ErrorCode.MEMBER_ID_REQUIRED
    )
    # The group exists from here on, so that it survives a change of coordinator.
    (record,) = driver.log
    assert record.key == GroupMetadataKey(group="g")
    assert record.value == GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=1_000_000,
        members=[],
    )
    assert record.value_version == 3

    joining = driver.join(member_id="c-1")
    assert isinstance(joining, Parked)
    driver.advance(2_999)
    assert joining.response is None
    driver.advance(1)
    assert joining.response == Answer.JoinGroup(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="c-1",
        member_id="c-1",
        members=[{"member_id": "c-1", "metadata": b"meta"}],
    )
    assert len(driver.log) == 1

    assert driver.sync("c-1", 1, {"c-1": b"mine"}) == Answer.SyncGroup(
        protocol_type="consumer", protocol_name="range", assignment=b"mine"
    )
    assert driver.log[1].value == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="c-1",
        current_state_timestamp=1_003_000,
        members=[
            MemberMetadata(
                member_id="c-1",
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=10_000,
                subscription=b"meta",
                assignment=b"mine",
            )
        ],
    )
    assert driver.shard.groups["g"].state == STABLE


def test_before_version_4_a_member_joins_without_asking_for_its_id() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=0)
    joining = driver.join(version=3)
    driver.advance(0)
    assert joining.response.member_id == joining.response.leader == "c-1"


def test_every_member_that_comes_extends_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    driver = GroupDriver()
    first = driver.join(version=3, rebalance_ms=7_000)
    driver.advance(2_000)
    driver.join(version=3, rebalance_ms=7_000)
    driver.advance(1_000)
    assert first.response is None
    driver.advance(2_999)
    driver.join(version=3, rebalance_ms=7_000)
    driver.advance(1)
    assert first.response is None
    driver.advance(1_000)  # 3 s, 3 s and the last second of the 7
    assert len(first.response.members) == 3


def test_requests_that_can_not_be_right_are_refused() -> None:
    driver = GroupDriver()

    def error(**join: object) -> int:
        return int(driver.join(**join).error_code)  # type: ignore[arg-type]

    assert error(group_id="") == ErrorCode.INVALID_GROUP_ID
    assert error(session_ms=5_999) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert error(session_ms=1_800_001) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert error(member_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.log == []
    assert error(protocol_type="") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(protocols=()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_of_another_kind_does_not_fit_in() -> None:
    driver = GroupDriver()
    driver.stable_group()
    other = driver.join(protocol_type="connect")
    assert other == Answer.JoinGroup(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    unknown_protocol = driver.join(protocols=(("sticky", b""),))
    assert unknown_protocol.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_what_most_members_prefer_among_those_all_know() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=100)
    joins = [
        driver.join(version=3, protocols=tuple((name, name.encode()) for name in names))
        for names in (("a", "b", "c"), ("b", "c", "a"), ("b", "c"))
    ]
    driver.advance(200)
    assert {joining.response.protocol_name for joining in joins} == {"b"}
    assert [member.metadata for member in joins[0].response.members] == [b"b", b"b", b"b"]


def test_a_second_member_makes_the_first_one_join_again() -> None:
    driver = GroupDriver()
    (first,) = driver.stable_group()
    second = driver.join().member_id
    assert driver.heartbeat(first, 1) == ErrorCode.NONE  # nobody has joined yet
    second_join = driver.join(member_id=second)
    assert driver.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.sync(first, 1).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    first_join = driver.join(member_id=first)
    assert first_join.generation_id == second_join.response.generation_id == 2
    assert [member.member_id for member in first_join.members] == [first, second]
    assert second_join.response.members == []
    assert second_join.response.leader == first


def test_a_member_that_does_not_join_again_in_time_is_out() -> None:
    driver = GroupDriver()
    first, second = driver.stable_group(2, rebalance_ms=8_000)
    rejoining = driver.join(member_id=first, rebalance_ms=8_000)
    driver.advance(7_999)
    assert isinstance(rejoining, Parked)
    assert rejoining.response is None
    driver.heartbeat(second, 1)
    driver.advance(1)
    assert [member.member_id for member in rejoining.response.members] == [first]
    assert driver.heartbeat(second, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_stays_away_another_member_leads() -> None:
    driver = GroupDriver()
    leader, other = driver.stable_group(2, rebalance_ms=8_000)
    changed = driver.join(member_id=other, protocols=(("range", b"new"),), rebalance_ms=8_000)
    driver.heartbeat(leader, 1)
    driver.advance(8_000)
    assert changed.response.leader == other
    assert changed.response.generation_id == 2


def test_a_follower_that_joins_with_nothing_new_gets_the_present_generation() -> None:
    driver = GroupDriver()
    _, follower = driver.stable_group(2)
    answer = driver.join(member_id=follower)
    assert answer.generation_id == 1
    assert answer.members == []
    assert driver.shard.groups["g"].state == STABLE


def test_a_leader_that_joins_again_asks_for_a_rebalance() -> None:
    driver = GroupDriver()
    (leader,) = driver.stable_group()
    answer = driver.join(member_id=leader)
    assert answer.generation_id == 2


def test_a_leader_that_repeats_its_join_before_syncing_gets_the_members_again() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=0)
    member = driver.join().member_id
    joining = driver.join(member_id=member)
    driver.advance(0)
    assert driver.join(member_id=member) == joining.response


def test_a_group_has_room_for_so_many_members() -> None:
    driver = GroupDriver(max_size=2)
    first, second = driver.stable_group(2)
    third = driver.join(version=3)
    assert third == Answer.JoinGroup(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert driver.join(member_id=second).error_code == ErrorCode.NONE
    assert driver.shard.groups["g"].members.keys() == {first, second}


def test_an_id_that_was_given_and_not_used_lapses_and_holds_nobody_up() -> None:
    driver = GroupDriver()
    (first,) = driver.stable_group(session_ms=30_000)
    driver.join(session_ms=10_000)
    rejoining = driver.join(member_id=first, session_ms=30_000)
    assert isinstance(rejoining, Parked)
    driver.advance(9_999)
    assert rejoining.response is None
    driver.advance(1)
    assert rejoining.response.generation_id == 2


def test_a_new_member_whose_join_takes_too_long_is_told_to_come_again() -> None:
    driver = GroupDriver(new_member_join_timeout_ms=20_000)
    (first,) = driver.stable_group(session_ms=30_000)
    joining = driver.join(version=3)
    driver.advance(20_000)
    assert joining.response == Answer.JoinGroup(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert driver.shard.groups["g"].state == PREPARING_REBALANCE
    assert driver.join(member_id=first).generation_id == 2


def test_a_join_that_is_repeated_on_another_connection_answers_the_first_one() -> None:
    driver = GroupDriver()
    first, _ = driver.stable_group(2)
    lost = driver.join(member_id=first)
    again = driver.join(member_id=first)
    assert lost.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.response is None


class TestStaticMembers:
    def test_it_joins_without_asking_for_its_id(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=0)
        joining = driver.join(instance="s1")
        driver.advance(0)
        assert joining.response.member_id == "s1-1"
        assert joining.response.members[0].group_instance_id == "s1"

    def test_after_a_restart_it_takes_up_its_assignment_without_a_rebalance(self) -> None:
        driver = stable_static_group()
        answer = driver.join(instance="s1")
        assert answer.member_id == "s1-3"
        assert answer.generation_id == 1
        assert answer.leader == "s1-3"
        assert answer.skip_assignment
        assert [member.member_id for member in answer.members] == ["s2-2", "s1-3"]
        (record,) = driver.last_records
        assert isinstance(record.value, GroupMetadataValue)
        assert {m.member_id: m.assignment for m in record.value.members} == {
            "s2-2": b"two",
            "s1-3": b"one",
        }
        assert driver.sync("s1-3", 1, instance="s1").assignment == b"one"
        assert driver.heartbeat("s1-1", 1, "s1") == ErrorCode.FENCED_INSTANCE_ID
        assert driver.heartbeat("s1-1", 1) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_before_version_9_the_returning_leader_is_not_told_that_it_leads(self) -> None:
        driver = stable_static_group()
        answer = driver.join(instance="s1", version=8)
        assert answer.leader == "s1-1"
        assert answer.members == []
        assert not answer.skip_assignment

    def test_a_return_that_changes_the_selected_protocol_rebalances(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=0)
        both = (("a", b""), ("b", b""))
        joining = driver.join(instance="s1", protocols=both)
        driver.advance(0)
        driver.sync("s1-1", 1, {"s1-1": b"one"})
        assert joining.response.protocol_name == "a"
        answer = driver.join(instance="s1", protocols=both[::-1])
        assert answer.generation_id == 2
        assert answer.protocol_name == "b"

    def test_a_return_while_the_leader_assigns_starts_over(self) -> None:
        driver = stable_static_group()
        joins = [driver.join(member_id=m, instance=i) for m, i in (("s1-1", "s1"), ("s2-2", "s2"))]
        assert joins[1].generation_id == 2
        waiting = driver.sync("s2-2", 2, instance="s2")
        returned = driver.join(instance="s1")
        assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert returned.response is None
        assert driver.join(member_id="s2-2", instance="s2").generation_id == 3
        assert returned.response.member_id == "s1-3"

    def test_two_processes_under_one_name_fence_the_older_one(self) -> None:
        driver = stable_static_group()
        waiting = driver.join(member_id="s1-1", instance="s1")
        newer = driver.join(instance="s1")
        assert waiting.response.error_code == ErrorCode.FENCED_INSTANCE_ID
        assert waiting.response.member_id == "s1-1"
        assert newer.response is None

    def test_absent_static_members_keep_their_place_until_their_session_ends(self) -> None:
        driver = stable_static_group(session_ms=30_000, rebalance_ms=5_000)
        waiting = driver.join(
            member_id="s1-1", instance="s1", session_ms=30_000, rebalance_ms=5_000
        )
        driver.advance(5_000)
        assert {m.member_id for m in waiting.response.members} == {"s1-1", "s2-2"}


def stable_static_group(**join: int) -> GroupDriver:
    driver = GroupDriver(initial_rebalance_delay_ms=100)
    joins = [driver.join(instance=name, **join) for name in ("s1", "s2")]  # type: ignore[arg-type]
    driver.advance(200)
    assert [joining.response.generation_id for joining in joins] == [1, 1]
    driver.sync("s2-2", 1, instance="s2")
    driver.sync("s1-1", 1, {"s1-1": b"one", "s2-2": b"two"}, instance="s1")
    return driver


def test_a_group_that_fell_empty_can_be_joined_again() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=0)
    (member,) = driver.stable_group()
    driver.leave((member, None))
    assert driver.shard.groups["g"].state == EMPTY
    joining = driver.join(version=3, protocol_type="connect")
    driver.advance(0)
    assert joining.response.generation_id == 3
    assert joining.response.protocol_type == "connect"


def test_members_of_a_new_group_are_not_in_the_log_before_their_generation_is() -> None:
    driver = GroupDriver()
    driver.join(version=3)
    (record,) = driver.log
    assert isinstance(record.value, GroupMetadataValue)
    assert (record.value.members, record.value.leader) == ([], None)
    driver.restart()
    assert driver.shard.groups["g"].state == EMPTY


def test_a_member_that_waits_for_others_is_decided_without_work() -> None:
    driver = GroupDriver()
    leader, second, third = driver.stable_group(3)
    driver.join(member_id=leader)
    driver.quick.clear()
    assert isinstance(driver.join(member_id=second), Parked)
    assert driver.quick["JoinGroupRequest"] == 1
    pending = driver.join().member_id
    assert isinstance(driver.join(member_id=pending), Parked)
    assert driver.quick["JoinGroupRequest"] == 3, "its id, and its join"
    assert driver.join(member_id=third).generation_id == 2
    assert driver.quick["JoinGroupRequest"] == 3, "it ends the join phase"


def test_a_new_group_waits_longer_for_a_member_that_was_decided_without_work() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=3000)
    first, second = (driver.join().member_id for _ in range(2))
    joining = driver.join(member_id=first)
    driver.quick.clear()
    assert isinstance(driver.join(member_id=second), Parked)
    assert driver.quick["JoinGroupRequest"] == 1
    driver.advance(3000)
    assert joining.response is None
    driver.advance(3000)
    assert len(joining.response.members) == 2
