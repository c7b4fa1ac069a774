"""Share groups step by step: answers, exact records, timers; as a running Kafka 4.3.1 gave them."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.broker.state.groups.share.heartbeat import request_problem
from kstore.broker.state.groups.timers import ShareStatesDeleted, ShareStatesDeleting
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.framing import encode_key, encode_value
from tests.broker.state.groups.share.share_driver import ShareDriver, assigned_of
from tests.plain_messages import Ask
from tests.reference.group_driver import snapshot

BEHIND_MS = 500_000
"""How far a clock was set back."""
JOIN_VALID: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "subscribed_topic_names": ["t"],
}


def names(driver: ShareDriver) -> list[str]:
    """The records of the last step, by type and whether they delete."""
    return [
        type(record.key).__name__.removeprefix("ShareGroup").removesuffix("Key")
        + ("" if record.value is not None else " -")
        for record in driver.last_records
    ]


@pytest.mark.parametrize(
    ("fields", "bad"),
    [
        ({}, False),
        ({"member_id": "x" * 36}, False),
        ({"member_epoch": 5, "subscribed_topic_names": None}, False),
        ({"member_epoch": -1, "subscribed_topic_names": None}, False),
        ({"member_id": ""}, True),
        ({"member_id": " "}, True),
        ({"member_id": "x" * 37}, True),
        ({"group_id": " "}, True),
        ({"rack_id": ""}, True),
        ({"subscribed_topic_names": None}, True),
        ({"subscribed_topic_names": []}, True),
        ({"member_epoch": -2}, True),
    ],
)
def test_what_is_wrong_with_a_request_whatever_the_group(fields: dict[str, Any], bad: bool) -> None:
    problem = request_problem(Ask.ShareGroupHeartbeat(**(JOIN_VALID | fields)))
    assert (problem is not None) == bad
    assert problem is None or problem.error_code == ErrorCode.INVALID_REQUEST


def test_a_member_gets_partitions_once_their_state_is_initialized() -> None:
    driver = ShareDriver()
    topic = driver.topic("t", 3)
    joined = driver.enter("m", "t", rack_id="r")
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 5000)
    assert assigned_of(joined) == {}
    assert names(driver) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "StatePartitionMetadata",
    ]
    assert driver.group.states.initializing[topic] == ("t", {0, 1, 2})
    assert driver.beat("m", 2).assignment is None
    assert names(driver) == []
    driver.initialized()
    assert names(driver) == ["StatePartitionMetadata"]
    again = driver.beat("m", 2)
    assert (again.member_epoch, assigned_of(again)) == (3, {topic: [0, 1, 2]})
    assert names(driver) == [
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    assert driver.beat("m", 3).assignment is None
    assert names(driver) == []


def test_records_have_the_bytes_of_kafkas_schemas() -> None:
    """The layout is that of the records that a running Kafka 4.3.1 wrote for the same steps."""
    driver = ShareDriver()
    topic = driver.topic("t", 2)
    driver.enter("m", "t")
    driver.initialized()
    driver.beat("m", 2)
    found = [
        (encode_key(r.key), None if r.value is None else encode_value(r.value, r.value_version))
        for r in driver.log
    ]
    group_hash = driver.group.metadata_hash.to_bytes(8, "big", signed=True)
    now = driver.now_ms.to_bytes(8, "big")
    host = b"\x0b/127.0.0.1"
    two = b"\x03\0\0\0\0\0\0\0\1\0"
    places = b"\x02" + topic.bytes + two
    named = b"\x02" + topic.bytes + b"\x02t" + two
    assert found == [
        (b"\0\x0a\0\1g\0\1m", b"\0\0\0\x02c" + host + b"\x02\x02t\0"),
        (b"\0\x0b\0\1g", b"\0\0\0\0\0\2" + group_hash + b"\0"),
        (b"\0\x0d\0\1g\0\1m", b"\0\0\1\0"),
        (b"\0\x0c\0\1g", b"\0\0\0\0\0\2\1\0\x08" + now),
        (b"\0\x0e\0\1g\0\1m", b"\0\0\0\0\0\2\0\0\0\0\0\1\0"),
        (b"\0\x0f\0\1g", b"\0\0" + named + b"\1\1\0"),
        (b"\0\x0f\0\1g", b"\0\0\1" + named + b"\1\0"),
        (b"\0\x0b\0\1g", b"\0\0\0\0\0\3" + group_hash + b"\0"),
        (b"\0\x0d\0\1g\0\1m", b"\0\0" + places + b"\0"),
        (b"\0\x0c\0\1g", b"\0\0\0\0\0\3\1\0\x08" + now),
        (b"\0\x0e\0\1g\0\1m", b"\0\0\0\0\0\3\0\0\0\2\0" + places + b"\0"),
    ]


def test_an_epoch_is_the_members_own_or_the_one_before() -> None:
    driver = ShareDriver()
    driver.topic("t", 1)
    driver.enter("m", "t")
    driver.settle("m")
    assert driver.group.members["m"].epoch == 3
    assert driver.beat("m", 2).member_epoch == 3
    for epoch in (1, 4):
        assert driver.beat("m", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    again = driver.enter("m", "t")
    assert (again.member_epoch, again.assignment is not None) == (3, True)
    assert driver.beat("other", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat("other", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_says_everything_hears_its_partitions_again() -> None:
    """The answer that brought them may have been lost; Kafka's broker does the same."""
    driver = ShareDriver()
    topic = driver.topic("t", 2)
    driver.enter("m", "t")
    driver.settle("m")
    for epoch in (2, 3):
        assert driver.beat("m", epoch).assignment is None
        again = driver.beat("m", epoch, subscribed_topic_names=["t"])
        assert (again.member_epoch, assigned_of(again)) == (3, {topic: [0, 1]})


def test_members_share_partitions_and_leave_them_to_each_other() -> None:
    driver = ShareDriver()
    topic = driver.topic("t", 1)
    driver.enter("a", "t")
    driver.enter("b", "t")
    assert driver.settle("a", "b") == {"a": {topic: [0]}, "b": {topic: [0]}}
    left = driver.beat("a", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert names(driver) == [
        "CurrentMemberAssignment -",
        "TargetAssignmentMember -",
        "MemberMetadata -",
        "Metadata",
    ]
    driver.beat("b", -1)
    assert (driver.group.state, driver.group.metadata_hash) == ("Empty", 0)


def test_who_is_silent_for_its_session_is_removed() -> None:
    driver = ShareDriver()
    driver.enter("a", "t")
    driver.advance(44_999)
    assert driver.group.members.keys() == {"a"}
    driver.restart()
    driver.advance(44_999)
    assert driver.group.members.keys() == {"a"}
    driver.advance(1)
    assert driver.group.is_empty


def test_a_group_has_as_many_members_as_the_setting_says() -> None:
    driver = ShareDriver(share_max_size=1)
    driver.enter("a", "t")
    assert driver.enter("b", "t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.enter("a", "t").error_code == 0


def test_assignments_are_spaced_out_and_a_member_in_between_keeps_what_it_has() -> None:
    driver = ShareDriver()
    driver.group_configs["share.assignment.interval.ms"] = 1000
    topic = driver.topic("t", 2)
    driver.enter("a", "t")
    driver.advance(1000)
    driver.settle("a")
    assert (driver.group.epoch, driver.group.assignment_epoch) == (3, 3)
    joined = driver.enter("b", "t")
    assert (driver.group.epoch, joined.member_epoch, assigned_of(joined)) == (4, 3, {})
    driver.advance(1000)
    assert driver.beat("b", 3).member_epoch == 4
    assert driver.settle("a", "b") == {"a": {topic: [0]}, "b": {topic: [1]}}


def test_a_clock_that_is_behind_holds_up_no_assignment() -> None:
    driver = ShareDriver()
    driver.group_configs["share.assignment.interval.ms"] = 1000
    driver.topic("t", 2)
    driver.enter("a", "t")
    driver.advance(1000)
    driver.settle("a")
    driver.now_ms -= BEHIND_MS
    assert driver.enter("b", "t").member_epoch == driver.group.epoch == 4


def test_partitions_that_could_not_be_initialized_are_tried_again() -> None:
    driver = ShareDriver()
    topic = driver.topic("t", 2)
    driver.enter("a", "t")
    driver.initialized(failed=frozenset({1}))
    assert driver.group.states.initializing == {}
    answer = driver.beat("a", 2)
    assert assigned_of(answer) == {topic: [0]}
    assert driver.group.states.initializing[topic].partitions == {1}
    assert driver.settle("a") == {"a": {topic: [0, 1]}}


def test_new_partitions_and_topics_are_initialized_and_deleted_topics_forgotten() -> None:
    driver = ShareDriver()
    topic = driver.topic("t", 1)
    driver.enter("a", "t", "u")
    driver.settle("a")
    driver.topic("t", 2)
    other = driver.topic("u", 1)
    driver.beat("a", driver.group.members["a"].epoch)
    assert driver.settle("a") == {"a": {topic: [0, 1], other: [0]}}
    driver.image = driver.image.without_topics("u")
    for result in driver.shard.forget_topic("u"):
        driver.take(result)
    assert driver.group.states.initialized.keys() == {topic}
    driver.beat("a", driver.group.members["a"].epoch)
    assert driver.settle("a") == {"a": {topic: [0, 1]}}


def test_groups_of_other_kinds_and_share_groups_keep_apart() -> None:
    driver = ShareDriver()
    driver.enter("a", "t")
    protocols = [{"name": "range", "metadata": b""}]
    join = Ask.JoinGroup(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        member_id="", protocol_type="consumer", protocols=protocols,
    )  # fmt: skip
    assert driver.send(join).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat = Ask.Heartbeat(group_id="g", member_id="a", generation_id=2)
    assert driver.send(beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    consumer = Ask.ConsumerGroupHeartbeat(
        group_id="g", member_id="c", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    assert driver.send(consumer).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    rows = [{"partition_index": 0}]
    commit = Ask.OffsetCommit(
        group_id="g", generation_id_or_member_epoch=-1,
        topics=[{"name": "t", "partitions": rows}],
    )  # fmt: skip
    told = driver.send(commit, version=8)
    assert told.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    driver.send(consumer.replaced(group_id="other"))
    refused = driver.send(Ask.ShareGroupHeartbeat(**(JOIN_VALID | {"group_id": "other"})))
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    unknown = driver.send(Ask.ShareGroupHeartbeat(group_id="no", member_id="m", member_epoch=1))
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def alter(driver: ShareDriver, topic: str, *partitions: int) -> Any:
    rows = [{"partition_index": p} for p in partitions]
    topics = [{"topic_name": topic, "partitions": rows}]
    return driver.send(Ask.AlterShareGroupOffsets(group_id="g", topics=topics))


def delete_offsets(driver: ShareDriver, *topics: str) -> Any:
    rows = [{"topic_name": topic} for topic in topics]
    return driver.send(Ask.DeleteShareGroupOffsets(group_id="g", topics=rows))


def test_altering_offsets_makes_a_group_and_refuses_what_is_not_there() -> None:
    driver = ShareDriver()
    topic = driver.topic("t", 2)
    assert alter(driver, "none", 0).responses[0].partitions[0].error_code == 3
    assert "g" not in driver.shard.groups
    told = alter(driver, "t", 1, 7)
    assert [row.error_code for row in told.responses[0].partitions] == [0, 3]
    assert names(driver) == ["StatePartitionMetadata"]
    driver.initialized()
    assert driver.group.states.initialized[topic].partitions == {1}
    driver.restart()
    assert driver.group.states.initialized[topic].partitions == {1}
    driver.enter("a", "t")
    assert alter(driver, "t", 0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(driver, "t").error_code == ErrorCode.NON_EMPTY_GROUP


def test_deleting_offsets_forgets_topics_and_says_which_the_group_does_not_have() -> None:
    driver = ShareDriver()
    assert delete_offsets(driver, "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    topic = driver.topic("t", 1)
    driver.topic("u", 1)
    alter(driver, "t", 0)
    driver.initialized()
    told = delete_offsets(driver, "t", "u", "none")
    assert [(row.topic_name, row.error_code) for row in told.responses] == [
        ("t", 0),
        ("u", 3),
        ("none", 3),
    ]
    assert driver.group.states.deleting == {topic: "t"}
    assert driver.group.deletions == {topic}
    driver.tell(ShareStatesDeleted("g", frozenset({topic}), frozenset()))
    assert (driver.group.states.deleting, driver.group.deletions) == ({topic: "t"}, frozenset())
    assert delete_offsets(driver, "t").responses[0].error_code == 0
    driver.tell(ShareStatesDeleted("g", frozenset({topic}), frozenset({topic})))
    assert driver.group.states.deleting == {}


def test_a_member_that_joins_while_states_are_deleted_waits_until_they_are() -> None:
    driver = ShareDriver()
    topic = driver.topic("t", 1)
    alter(driver, "t", 0)
    driver.initialized()
    delete_offsets(driver, "t")
    driver.enter("a", "t")
    assert driver.group.states.initializing == {}
    driver.tell(ShareStatesDeleted("g", frozenset({topic}), frozenset()))
    driver.beat("a", 2)
    assert driver.group.states.initializing.keys() == {topic}
    assert driver.group.states.deleting == {}


def test_a_group_is_deleted_after_its_states_and_only_without_members() -> None:
    driver = ShareDriver()
    driver.topic("t", 1)
    driver.enter("a", "t")
    driver.initialized()
    driver.tell(ShareStatesDeleting("g"))
    assert names(driver) == []
    delete = Ask.DeleteGroups(groups_names=["g"])
    assert driver.send(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    driver.beat("a", -1)
    driver.tell(ShareStatesDeleting("g"))
    assert driver.group.states.deleting.keys() == driver.group.deletions
    assert driver.send(delete).results[0].error_code == 0
    assert names(driver) == ["TargetAssignmentMetadata -", "StatePartitionMetadata -", "Metadata -"]
    assert driver.shard.groups == {}
    driver.restart()
    assert driver.shard.groups == {}


def test_an_empty_group_stays_and_a_restart_finds_it_as_it_was() -> None:
    driver = ShareDriver()
    driver.topic("t", 2)
    driver.enter("a", "t")
    driver.settle("a")
    before = snapshot(driver.shard)["groups"]["g"]
    driver.restart()
    after = snapshot(driver.shard)["groups"]["g"]
    soft = {"seen_image_version", "deletions"}
    assert {k: v for k, v in before.items() if k not in soft} == {
        k: v for k, v in after.items() if k not in soft
    }
    driver.advance(10 * 24 * 3600 * 1000)
    driver.expire_offsets()
    assert driver.group.is_empty
