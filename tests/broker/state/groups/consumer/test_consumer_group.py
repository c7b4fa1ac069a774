"""Consumer groups (KIP-848): members join, leave, pass partitions on; stale ones are fenced."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.consumer.member import (
    STABLE,
    STATIC_LEFT_EPOCH,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
)
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.work import whole
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicPartitions,
)
from kstore.protocol.groups.offsets import OffsetFetchRequestGroup
from tests.plain_messages import Ask
from tests.reference.consumer_driver import ConsumerDriver, owned_of

SESSION_MS = 45_000
REBALANCE_MS = 60_000
BEHIND_MS = 500_000
"""How far a clock was set back."""


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


def two_members(driver: ConsumerDriver) -> UUID:
    """a owns 0 and 1 since epoch 2, b owns 2 and 3 since epoch 3; both are in epoch 3."""
    topic = driver.topic("t", 4)
    driver.enter("a", "t")
    driver.enter("b", "t")
    driver.beat("a", 2)
    driver.beat("a", 2, {topic: [0, 1]})
    driver.beat("b", 3)
    return topic


def epochs(driver: ConsumerDriver, member: str) -> dict[int, int]:
    (assigned,) = driver.group.members[member].assigned.values()
    return dict(assigned)


class TestMembership:
    def test_the_first_member_gets_everything_in_epoch_two(self, driver: ConsumerDriver) -> None:
        topic = driver.topic("t", 3)
        response = driver.enter("a", "t")
        assert (response.error_code, response.member_epoch) == (0, 2)
        assert response.heartbeat_interval_ms == 5000
        assert owned_of(response) == {topic: [0, 1, 2]}
        assert driver.group.state == "Stable"

    def test_a_heartbeat_without_news_writes_nothing(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        before = driver.quick.total()
        response = driver.beat("a", 3)
        assert response.assignment is None
        assert driver.last_records == []
        driver.beat("b", 3, {topic: [2, 3]})
        assert driver.quick.total() == before + 2, "they are answered without work"
        driver.topic("t", 5)
        driver.beat("a", 3)
        assert driver.quick.total() == before + 2

    def test_a_full_request_is_told_its_assignment(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        response = driver.beat(
            "a", 3, {topic: [0, 1]}, rebalance_timeout_ms=1, subscribed_topic_names=["t"]
        )
        assert owned_of(response) == {topic: [0, 1]}

    def test_partitions_are_given_up_before_another_gets_them(self, driver: ConsumerDriver) -> None:
        topic = driver.topic("t", 4)
        driver.enter("a", "t")
        assert owned_of(driver.enter("b", "t")) == {}
        assert driver.group.members["b"].state == UNRELEASED_PARTITIONS
        told = driver.beat("a", 2)
        assert (told.member_epoch, owned_of(told)) == (2, {topic: [0, 1]})
        assert driver.group.members["a"].state == UNREVOKED_PARTITIONS
        assert driver.beat("b", 3).assignment is None
        assert driver.beat("a", 2, {topic: [0, 1, 2]}).member_epoch == 2
        assert driver.beat("a", 2, {topic: [0, 1]}).member_epoch == 3
        assert owned_of(driver.beat("b", 3)) == {topic: [2, 3]}
        assert [m.state for m in driver.group.members.values()] == [STABLE, STABLE]

    def test_who_leaves_frees_its_partitions(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        response = driver.beat("b", -1)
        assert (response.error_code, response.member_epoch) == (0, -1)
        assert owned_of(driver.beat("a", 3)) == {topic: [0, 1, 2, 3]}
        assert driver.beat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        driver.beat("a", -1)
        assert driver.group.state == "Empty"

    def test_a_silent_member_is_removed(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        driver.advance(SESSION_MS - 1)
        driver.beat("a", 3)
        driver.advance(1)
        assert driver.group.members.keys() == {"a"}
        assert owned_of(driver.beat("a", 3)) == {topic: [0, 1, 2, 3]}
        assert driver.beat("b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_who_does_not_give_up_in_time_is_removed(self, driver: ConsumerDriver) -> None:
        driver.topic("t", 4)
        driver.enter("a", "t")
        driver.enter("b", "t")
        for _ in range(REBALANCE_MS // 10_000):
            driver.beat("a", 2)
            driver.beat("b", driver.group.members["b"].epoch)
            driver.advance(10_000)
        assert driver.group.members.keys() == {"b"}

    def test_a_group_that_is_full_takes_no_more(self) -> None:
        driver = ConsumerDriver(consumer_max_size=1)
        driver.topic("t", 1)
        driver.enter("a", "t")
        assert driver.enter("b", "t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.enter("a", "t").error_code == ErrorCode.NONE

    def test_a_new_partition_reaches_the_group(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        driver.topic("t", 6)
        got = [owned_of(driver.beat(member, 3))[topic] for member in "ab"]
        assert sorted(got[0] + got[1]) == [0, 1, 2, 3, 4, 5]
        assert driver.group.epoch == 4

    def test_a_deleted_topic_is_taken_away(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        driver.image = driver.image.without_topics("t")
        assert owned_of(driver.beat("a", 3)) == {}
        assert driver.beat("a", 3, {}).member_epoch == 4
        assert topic not in driver.group.members["a"].assigned

    def test_unrelated_topics_change_nothing(self, driver: ConsumerDriver) -> None:
        two_members(driver)
        driver.topic("other", 6)
        driver.beat("a", 3)
        assert driver.last_records == []

    def test_a_burst_of_changes_leads_to_one_assignment(self, driver: ConsumerDriver) -> None:
        driver.group_configs["consumer.assignment.interval.ms"] = 1000
        driver.topic("t", 4)
        driver.enter("a", "t")
        for member in "bcd":
            assert driver.enter(member, "t").member_epoch == 2
        assert (driver.group.epoch, driver.group.assignment_epoch) == (5, 2)
        driver.advance(1000)
        assert driver.beat("d", 2).member_epoch == 5
        assert driver.group.assignment_epoch == 5

    def test_a_clock_that_is_behind_holds_up_no_assignment(self, driver: ConsumerDriver) -> None:
        driver.group_configs["consumer.assignment.interval.ms"] = 1000
        driver.topic("t", 4)
        driver.enter("a", "t")
        driver.now_ms -= BEHIND_MS
        driver.enter("b", "t")
        assert (driver.group.epoch, driver.group.assignment_epoch) == (3, 3)


class TestFencing:
    def test_an_epoch_from_the_future_is_fenced(self, driver: ConsumerDriver) -> None:
        two_members(driver)
        assert driver.beat("a", 4).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_the_epoch_before_is_taken_if_the_answer_was_lost(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        assert driver.beat("a", 2, {topic: [0, 1]}).member_epoch == 3
        assert driver.beat("a", 2, {topic: [0]}).member_epoch == 3
        for owned in (None, {topic: [0, 1, 2]}, {UUID(int=5): [0]}):
            assert driver.beat("a", 2, owned).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert driver.beat("a", 1, {topic: [0]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_only_a_join_makes_groups_and_members(self, driver: ConsumerDriver) -> None:
        assert driver.beat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        two_members(driver)
        assert driver.beat("c", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.shard.groups.keys() == {"g"}

    def test_a_fenced_member_comes_back_with_epoch_zero(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        response = driver.enter("a", "t")
        assert (response.member_epoch, owned_of(response)) == (3, {topic: [0, 1]})


class TestCommits:
    """KAFKA-19779: assignment epoch <= client's member epoch <= broker's member epoch."""

    def test_a_kept_partition_is_committed_with_any_epoch_since(
        self, driver: ConsumerDriver
    ) -> None:
        two_members(driver)
        assert epochs(driver, "a") == {0: 2, 1: 2}
        for epoch in (2, 3):
            assert driver.commit("a", epoch, "t", 0, 1) == [0, 0]
        stale = ErrorCode.STALE_MEMBER_EPOCH
        for epoch in (1, 4, -1):
            assert driver.commit("a", epoch, "t", 0) == [stale]

    def test_a_new_partition_is_not_committed_with_an_older_epoch(
        self, driver: ConsumerDriver
    ) -> None:
        two_members(driver)
        assert epochs(driver, "b") == {2: 3, 3: 3}
        assert driver.commit("b", 2, "t", 2) == [ErrorCode.STALE_MEMBER_EPOCH]
        assert driver.commit("b", 3, "t", 2) == [ErrorCode.NONE]

    def test_what_is_pending_revocation_may_be_committed(self, driver: ConsumerDriver) -> None:
        topic = driver.topic("t", 4)
        driver.enter("a", "t")
        driver.enter("b", "t")
        driver.beat("a", 2)
        assert driver.group.members["a"].revoking == {topic: {2: 2, 3: 2}}
        assert driver.commit("a", 2, "t", 2, 3) == [0, 0]
        driver.beat("a", 2, {topic: [0, 1]})
        stale = ErrorCode.STALE_MEMBER_EPOCH
        assert driver.commit("a", 2, "t", 2) == [stale]

    def test_the_present_epoch_commits_what_is_not_assigned_too(
        self, driver: ConsumerDriver
    ) -> None:
        two_members(driver)
        assert driver.commit("a", 3, "t", 0, 2) == [0, 0]
        assert driver.commit("a", 3, "elsewhere", 7) == [0]
        stale = ErrorCode.STALE_MEMBER_EPOCH
        assert driver.commit("a", 2, "t", 0, 2) == [stale, stale]

    def test_by_setting_it_commits_only_what_is_assigned(self) -> None:
        driver = ConsumerDriver(commit_requires_assignment=True)
        two_members(driver)
        stale = ErrorCode.STALE_MEMBER_EPOCH
        assert driver.commit("a", 3, "t", 2) == [stale]
        assert driver.commit("a", 3, "t", 0, 2) == [stale, stale]
        assert driver.last_records == []

    def test_what_owners_are_refused_is_counted_and_nothing_of_others(
        self, driver: ConsumerDriver
    ) -> None:
        two_members(driver)
        stale = ErrorCode.STALE_MEMBER_EPOCH
        assert driver.commit("a", 3, "t", 0, 1) == [0, 0]
        assert driver.commit("a", 2, "t", 2) == [stale], "it is b's"
        assert driver.commit("x", 3, "t", 0) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert driver.refused == {}
        assert driver.commit("a", 4, "t", 0, 1, 2) == [stale] * 3, "an epoch that is yet to come"
        assert driver.refused == {stale: 2}
        driver.commit("a", 3, "t", 0, version=8)
        assert driver.refused == {stale: 2, ErrorCode.UNSUPPORTED_VERSION: 1}

    def test_epochs_survive_bumps_and_restarts(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        driver.topic("t", 6)
        for member in "ab":
            driver.beat(member, 3)
        before = {member: epochs(driver, member) for member in "ab"}
        assert [before["a"][0], before["b"][2]] == [2, 3]
        assert sorted(value for part in before.values() for value in part.values()) == [
            2, 2, 3, 3, 4, 4,
        ]  # fmt: skip
        driver.restart()
        assert {member: epochs(driver, member) for member in "ab"} == before
        assert driver.commit("a", 2, "t", 0) == [ErrorCode.NONE]
        assert topic in driver.group.members["a"].assigned

    def test_records_without_epochs_count_as_of_the_member_s(self, driver: ConsumerDriver) -> None:
        topic = two_members(driver)
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
        rows = [TopicPartitions(topic_id=topic, partitions=[0, 1])]
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3, previous_member_epoch=2, assigned_partitions=rows
        )
        driver.shard.replay(GroupRecord(key, value))
        assert epochs(driver, "a") == {0: 3, 1: 3}

    def test_a_transaction_s_commit_is_told_of_a_generation(self, driver: ConsumerDriver) -> None:
        two_members(driver)

        def commit(member: str, epoch: int, partition: int) -> int:
            row = {"partition_index": partition}
            request = Ask.TxnOffsetCommit(
                transactional_id="x",
                group_id="g",
                producer_id=1,
                producer_epoch=0,
                member_id=member,
                generation_id=epoch,
                topics=[{"name": "t", "partitions": [row]}],
            )
            return int(driver.send(request).topics[0].partitions[0].error_code)

        illegal = ErrorCode.ILLEGAL_GENERATION
        assert [commit("a", epoch, 0) for epoch in (1, 2, 3, 4)] == [illegal, 0, 0, illegal]
        assert driver.refused == {illegal: 2}
        assert [commit("b", 2, 2), commit("b", 3, 2), commit("a", 3, 2)] == [illegal, 0, 0]
        assert commit("a", 2, 2) == illegal
        assert commit("x", 3, 0) == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit("", -1, 0) == ErrorCode.NONE  # a producer that names no member

    def test_members_need_a_version_with_epochs(self, driver: ConsumerDriver) -> None:
        two_members(driver)
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        assert driver.commit("a", 3, "t", 0, version=8) == [unsupported]

    def test_nobody_commits_into_an_active_group(self, driver: ConsumerDriver) -> None:
        two_members(driver)
        assert driver.commit("", -1, "t", 0) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert driver.commit("x", 3, "t", 0) == [ErrorCode.UNKNOWN_MEMBER_ID]
        for member in "ab":
            driver.beat(member, -1)
        assert driver.commit("", -1, "t", 0) == [ErrorCode.NONE]

    @pytest.mark.parametrize(
        ("member", "epoch", "error_code"),
        [
            (None, -1, ErrorCode.NONE),
            ("a", 3, ErrorCode.NONE),
            ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
            ("x", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_offsets_are_read_in_the_member_s_epoch(
        self, driver: ConsumerDriver, member: str | None, epoch: int, error_code: int
    ) -> None:
        two_members(driver)
        request = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch)
        response = whole(driver.shard.fetch_offsets(request, require_stable=False))
        assert response.error_code == error_code


class TestStaticMembers:
    def enter(self, driver: ConsumerDriver, member: str) -> Any:
        return driver.enter(member, "t", instance_id="i")

    def test_the_partitions_wait_for_who_left_for_a_while(self, driver: ConsumerDriver) -> None:
        topic = driver.topic("t", 2)
        self.enter(driver, "a")
        assert driver.beat("a", -2, instance_id="i").member_epoch == STATIC_LEFT_EPOCH
        assert driver.group.epoch == 2
        back = self.enter(driver, "b")
        assert (back.member_epoch, owned_of(back)) == (2, {topic: [0, 1]})
        assert driver.group.epoch == 2
        assert driver.group.members.keys() == {"b"}
        fenced = driver.beat("a", 2, instance_id="i")
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID

    def test_an_instance_that_is_there_is_not_replaced(self, driver: ConsumerDriver) -> None:
        driver.topic("t", 2)
        self.enter(driver, "a")
        assert self.enter(driver, "b").error_code == ErrorCode.UNRELEASED_INSTANCE_ID

    def test_who_does_not_come_back_is_removed(self, driver: ConsumerDriver) -> None:
        driver.topic("t", 2)
        self.enter(driver, "a")
        driver.beat("a", -2, instance_id="i")
        driver.advance(SESSION_MS)
        assert driver.group.members == {}

    def test_who_left_for_a_while_may_not_commit(self, driver: ConsumerDriver) -> None:
        driver.topic("t", 2)
        self.enter(driver, "a")
        driver.beat("a", -2, instance_id="i")
        assert driver.commit("a", 2, "t", 0) == [ErrorCode.STALE_MEMBER_EPOCH]


class TestRegularExpressions:
    def enter(self, driver: ConsumerDriver, member: str, regex: str) -> Any:
        return driver.enter(member, subscribed_topic_names=None, subscribed_topic_regex=regex)

    def test_what_matches_is_assigned_with_the_next_heartbeat(self, driver: ConsumerDriver) -> None:
        topic = driver.topic("orders-1", 2)
        driver.topic("other", 2)
        response = self.enter(driver, "a", "orders-.*")
        assert (response.member_epoch, owned_of(response)) == (1, {})
        response = driver.beat("a", 1)
        assert (response.member_epoch, owned_of(response)) == (2, {topic: [0, 1]})

    def test_new_topics_are_found_later(self, driver: ConsumerDriver) -> None:
        driver.topic("orders-1", 1)
        self.enter(driver, "a", "orders-.*")
        driver.beat("a", 1)
        new = driver.topic("orders-2", 1)
        driver.beat("a", 2)
        assert new not in driver.group.members["a"].assigned
        driver.advance(10_001)
        driver.beat("a", 2)
        driver.beat("a", 2)
        assert new in driver.group.members["a"].assigned

    def test_a_clock_that_is_behind_hides_no_topic(self, driver: ConsumerDriver) -> None:
        driver.topic("orders-1", 1)
        self.enter(driver, "a", "orders-.*")
        driver.beat("a", 1)
        new = driver.topic("orders-2", 1)
        driver.now_ms -= BEHIND_MS
        driver.beat("a", 2)
        driver.beat("a", 2)
        assert new in driver.group.members["a"].assigned

    def test_an_invalid_one_is_refused(self, driver: ConsumerDriver) -> None:
        response = self.enter(driver, "a", "(")
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert driver.shard.groups == {}

    def test_the_last_subscriber_takes_it_along(self, driver: ConsumerDriver) -> None:
        driver.topic("orders-1", 1)
        for member in "ab":
            self.enter(driver, member, "orders-.*")
        assert driver.group.regexes.keys() == {"orders-.*"}
        driver.beat("a", -1)
        assert driver.group.regexes.keys() == {"orders-.*"}
        driver.beat("b", -1)
        assert driver.group.regexes == {}


class TestLog:
    def test_a_restart_loses_nothing(self, driver: ConsumerDriver) -> None:
        two_members(driver)
        driver.enter("c", subscribed_topic_names=None, subscribed_topic_regex="t.*")
        soft = {"seen_image_version", "regexes_image_version"}
        stored = set(ConsumerGroup.__slots__) - soft
        before = {name: getattr(driver.group, name) for name in stored}
        driver.restart()
        assert {name: getattr(driver.group, name) for name in before} == before
        driver.advance(SESSION_MS)
        assert driver.group.members == {}

    def test_an_older_broker_s_record_of_the_topics_is_deleted(
        self, driver: ConsumerDriver
    ) -> None:
        two_members(driver)
        key = ConsumerGroupPartitionMetadataKey(group_id="g")
        driver.shard.replay(GroupRecord(key, ConsumerGroupPartitionMetadataValue()))
        driver.topic("t", 5)
        driver.beat("a", 3)
        assert GroupRecord(key, None) in driver.last_records
        assert not driver.group.has_partition_metadata

    def test_a_deleted_group_leaves_nothing(self, driver: ConsumerDriver) -> None:
        two_members(driver)
        delete = Ask.DeleteGroups(groups_names=["g"])
        assert driver.send(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        driver.commit("a", 3, "t", 0)
        for member in "ab":
            driver.beat(member, -1)
        assert driver.send(delete).results[0].error_code == ErrorCode.NONE
        driver.restart()
        assert driver.shard.groups == {}

    def test_offsets_expire_where_nobody_subscribes_and_the_empty_group_with_them(
        self, driver: ConsumerDriver
    ) -> None:
        two_members(driver)
        driver.commit("a", 3, "t", 0)
        week_ms = driver.shard.settings.offsets_retention_ms
        driver.now_ms += week_ms
        driver.expire_offsets()
        assert driver.shard.offsets.get("g", "t", 0) is not None
        for member in "ab":
            driver.beat(member, -1)
        driver.expire_offsets()
        assert driver.shard.groups == {}
        driver.restart()
        assert driver.shard.groups == {}

    def test_a_group_of_offsets_only_becomes_a_consumer_group(self, driver: ConsumerDriver) -> None:
        driver.topic("t", 1)
        driver.commit("", -1, "t", 0)
        assert driver.enter("a", "t").member_epoch == 2
        driver.restart()
        assert driver.group.members.keys() == {"a"}
        assert driver.shard.offsets.get("g", "t", 0) is not None
