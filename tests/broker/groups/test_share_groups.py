"""Share groups through a socket: initialization, kill -9, offsets, deletion, configs."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

from kstore.errors import ErrorCode
from tests.broker.harness.wire import Wire
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "kstore.check.invariants": "true",
}
Assigned = dict[UUID, list[int]]


class Line(Wire):
    """What a member of a share group, and its administrator, ask."""

    group = "g"

    def beat(self, member_id: str, epoch: int, *topics: str) -> Any:
        """A heartbeat, again while the coordinator is not there yet."""
        request = Ask.ShareGroupHeartbeat(
            group_id=self.group,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=list(topics) or None,
        )
        wait = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        while (answer := self.call(request)).error_code in wait:
            time.sleep(0.05)
        return answer

    def until_assigned(self, member_id: str, epoch: int) -> tuple[int, Assigned]:
        """Beat until the member has partitions; its epoch and what it has."""
        while True:
            answer = self.beat(member_id, epoch)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                rows = answer.assignment.topic_partitions
                return epoch, {row.topic_id: list(row.partitions) for row in rows}
            time.sleep(0.05)

    def described(self) -> Any:
        return self.call(Ask.ShareGroupDescribe(group_ids=[self.group])).groups[0]

    def offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) to (start offset, lag) of all that the group has."""
        group = {"group_id": self.group, "topics": None}
        told = self.call(Ask.DescribeShareGroupOffsets(groups=[group])).groups[0]
        assert told.error_code == 0, told
        return {
            (topic.topic_name, row.partition_index): (row.start_offset, row.lag)
            for topic in told.topics
            for row in topic.partitions
        }

    def alter(self, topic: str, offsets: dict[int, int]) -> Any:
        rows = [
            {"partition_index": index, "start_offset": offset} for index, offset in offsets.items()
        ]
        topics = [{"topic_name": topic, "partitions": rows}]
        return self.call(Ask.AlterShareGroupOffsets(group_id=self.group, topics=topics))

    def delete_offsets(self, topic: str) -> Any:
        topics = [{"topic_name": topic}]
        return self.call(Ask.DeleteShareGroupOffsets(group_id=self.group, topics=topics))

    def delete(self) -> int:
        told = self.call(Ask.DeleteGroups(groups_names=[self.group])).results[0]
        return told.error_code


def test_members_get_partitions_and_a_killed_broker_knows_them_still(broker: KstoreBroker) -> None:
    with Line(broker) as line:
        topic = line.make_topic("t", 2)
        joined = line.beat("a", 0, "t")
        assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 100)
        epoch, assigned = line.until_assigned("a", 2)
        assert (epoch, assigned) == (3, {topic: [0, 1]})
        before = line.described()
        assert (before.group_state, before.assignor_name) == ("Stable", "simple")
        listed = line.call(Ask.ListGroups(types_filter=["share"])).groups
        assert [(row.group_id, row.group_type) for row in listed] == [("g", "share")]
        seen = line.call(Ask.DescribeGroups(groups=["g"])).groups[0]
        assert (seen.group_state, seen.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    broker.kill()
    broker.start()
    with Line(broker) as line:
        assert line.beat("a", 3).member_epoch == 3
        assert line.described() == before
        assert line.offsets() == {("t", 0): (-1, -1), ("t", 1): (-1, -1)}


def test_offsets_are_altered_and_deleted_while_nobody_is_there(broker: KstoreBroker) -> None:
    with Line(broker) as line:
        topic = line.make_topic("t", 2)
        line.beat("a", 0, "t")
        line.until_assigned("a", 2)
        assert line.alter("t", {0: 5}).error_code == ErrorCode.NON_EMPTY_GROUP
        assert line.delete_offsets("t").error_code == ErrorCode.NON_EMPTY_GROUP
        assert line.delete() == ErrorCode.NON_EMPTY_GROUP
        assert line.beat("a", -1).error_code == 0
        told = line.alter("t", {0: 5, 9: 0}).responses[0]
        assert told.topic_id == topic
        assert [row.error_code for row in told.partitions] == [0, 3]
        assert line.offsets() == {("t", 0): (5, -5), ("t", 1): (-1, -1)}
        assert line.delete_offsets("t").responses[0].error_code == 0
        assert line.offsets() == {}
        assert line.delete_offsets("t").responses[0].error_code == 3


def test_a_deleted_group_begins_anew_and_a_deleted_topic_is_forgotten(broker: KstoreBroker) -> None:
    with Line(broker) as line:
        line.make_topic("t", 2)
        line.make_topic("u", 2)
        line.alter("t", {0: 5})
        line.alter("u", {0: 7})
        line.call(Ask.DeleteTopics(topics=[{"name": "u"}], timeout_ms=10_000))
        assert line.offsets() == {("t", 0): (5, -5)}
        assert line.delete() == 0
        assert line.delete() == ErrorCode.GROUP_ID_NOT_FOUND
        assert line.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        line.alter("t", {1: 1})
        assert line.offsets() == {("t", 1): (1, -1)}


def test_a_groups_own_settings_count(broker: KstoreBroker) -> None:
    with Line(broker) as line:
        assert line.set_group("g", share_heartbeat_interval_ms="99") == ErrorCode.INVALID_CONFIG
        assert line.set_group("g", share_heartbeat_interval_ms="15001") == ErrorCode.INVALID_CONFIG
        assert line.set_group("g", share_heartbeat_interval_ms="1234") == 0
        assert line.beat("a", 0, "t").heartbeat_interval_ms == 1234


def test_without_the_feature_there_are_no_share_groups(broker: KstoreBroker) -> None:
    with Line(broker) as line:
        update = {"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}
        told = line.call(Ask.UpdateFeatures(feature_updates=[update], timeout_ms=10_000))
        assert told.error_code == 0, told
        assert line.beat(str(uuid4()), 0, "t").error_code == ErrorCode.UNSUPPORTED_VERSION
        assert line.described().error_code == ErrorCode.UNSUPPORTED_VERSION
        assert line.alter("t", {0: 0}).error_code == ErrorCode.UNSUPPORTED_VERSION
