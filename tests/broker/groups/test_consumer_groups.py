"""Consumer groups through a socket: listing, configs, the switch, and what kill -9 leaves."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from kstore.errors import ErrorCode
from tests.broker.groups.test_expansion import QUICK
from tests.broker.harness.topic_client import TopicClient, held
from tests.conformance.broker_process import free_port
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask


@pytest.fixture
def line(start_broker: Callable[..., KstoreBroker]) -> TopicClient:
    line = TopicClient(start_broker(QUICK), extended=False)
    line.make_topic("t", 2)
    return line


def enter(line: TopicClient, member: str = "a", **fields: Any) -> Any:
    return line.beat(member, 0, **({"subscribed_topic_names": ["t"]} | fields))


def commit(line: TopicClient, member: str, epoch: int, partition: int, **fields: Any) -> int:
    who = {"member_id": member, "generation_id_or_member_epoch": epoch}
    [code] = line.commit("t", {partition: 5}, **fields, **who)
    return code


def test_groups_are_listed_by_type_and_state(line: TopicClient) -> None:
    enter(line)

    def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
        groups = line.call(Ask.ListGroups(**filters)).groups
        return [(group.group_id, group.group_type, group.group_state) for group in groups]

    mine = [("g", "consumer", "Stable")]
    assert listed() == mine
    assert listed(types_filter=["Consumer"], states_filter=["stable"]) == mine
    assert listed(types_filter=["classic"]) == []
    assert listed(states_filter=["Empty"]) == []
    described = line.call(Ask.DescribeGroups(groups=["g"])).groups[0]
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    old = line.call(Ask.DescribeGroups(groups=["g"]), 5).groups[0]
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")


def test_a_group_s_settings_hold_for_it(line: TopicClient) -> None:
    assert enter(line).heartbeat_interval_ms == 5000
    assert line.set_group("g", consumer_heartbeat_interval_ms=7000) == 0
    assert line.beat("a", 2).heartbeat_interval_ms == 7000


def test_topics_that_grow_or_go_reach_the_group(line: TopicClient) -> None:
    assert held(enter(line)) == [0, 1]
    more = [{"name": "t", "count": 4, "assignments": None}]
    grown = line.call(Ask.CreatePartitions(topics=more, timeout_ms=5000))
    assert grown.results[0].error_code == 0, grown
    assert held(line.beat("a", 2)) == [0, 1, 2, 3]
    line.call(Ask.DeleteTopics(topics=[{"name": "t"}], timeout_ms=5000))
    assert held(line.beat("a", 3)) == []


def test_kill_9_loses_nothing_of_a_group(start_broker: Callable[..., KstoreBroker]) -> None:
    broker = start_broker(QUICK)
    line = TopicClient(broker, extended=False)
    new = {"name": "t", "num_partitions": 4, "replication_factor": 1}
    line.call(Ask.CreateTopics(topics=[new]))
    enter(line)
    enter(line, "b", instance_id="i")
    line.beat("a", 2)
    assert commit(line, "a", 2, 3, partition_epoch=7) == ErrorCode.NONE
    before = line.call(Ask.ConsumerGroupDescribe(group_ids=["g"])).groups[0]
    broker.kill()
    broker.start()
    line = TopicClient(broker)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    deadline = time.monotonic() + 20
    while True:
        after = line.call(Ask.ConsumerGroupDescribe(group_ids=["g"])).groups[0]
        if after.error_code != loading or time.monotonic() > deadline:
            break
    assert after == before
    assert after.group_state == "Reconciling"
    assert commit(line, "a", 2, 3, partition_epoch=6) == ErrorCode.INVALID_PARTITION_EPOCH
    assert commit(line, "a", 1, 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(line, "b", 4, 3) == ErrorCode.STALE_MEMBER_EPOCH
    asked = {"group_id": "g", "topics": None}
    fetched = line.call(Ask.OffsetFetch(groups=[asked]), 9).groups[0]
    (partition,) = fetched.topics[0].partitions
    assert (partition.committed_offset, partition.partition_epoch) == (5, 7)


def test_commits_that_owners_are_refused_are_in_the_metrics(
    start_broker: Callable[..., KstoreBroker],
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    line = TopicClient(start_broker(QUICK | {"kstore.metrics.listener": url}), extended=False)

    def told() -> list[str]:
        with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
            page: str = answer.read().decode()
        return [row for row in page.splitlines() if row.startswith("kstore_owner_commits")]

    new = {"name": "t", "num_partitions": 2, "replication_factor": 1}
    line.call(Ask.CreateTopics(topics=[new]))
    enter(line)
    assert commit(line, "a", 2, 0) == ErrorCode.NONE
    assert commit(line, "x", 2, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert told() == []
    for partition in (0, 1):
        assert commit(line, "a", 3, partition) == ErrorCode.STALE_MEMBER_EPOCH
    assert told() == ['kstore_owner_commits_refused_total{reason="STALE_MEMBER_EPOCH"} 2']


def test_an_emptied_group_is_deleted(line: TopicClient) -> None:
    enter(line)
    delete = Ask.DeleteGroups(groups_names=["g"])
    assert line.call(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert line.beat("a", -1).member_epoch == -1
    assert line.call(delete).results[0].error_code == ErrorCode.NONE
    described = line.call(Ask.ConsumerGroupDescribe(group_ids=["g"])).groups[0]
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_protocol_can_be_switched_off(start_broker: Callable[..., KstoreBroker]) -> None:
    off = {"group.coordinator.rebalance.protocols": "classic"}
    line = TopicClient(start_broker(off), extended=False)
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert enter(line).error_code == unsupported
    described = line.call(Ask.ConsumerGroupDescribe(group_ids=["g"])).groups[0]
    assert described.error_code == unsupported
