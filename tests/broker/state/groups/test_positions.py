"""Positions through heartbeats (KIP-253): a request for a position gets the larger of the last
heartbeat's position and the committed offset. All members learn which positions are requested.
"""

from __future__ import annotations

from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import NeedPositionTopic, PositionPartition, PositionTopic
from tests.plain_messages import Ask
from tests.record_requests import commit_request
from tests.reference.consumer_driver import ConsumerDriver


@pytest.fixture
def driver() -> ConsumerDriver:
    driver = ConsumerDriver()
    driver.topic("t", 3)
    return driver


def need(*partitions: int) -> list[NeedPositionTopic]:
    return [NeedPositionTopic(topic="t", partitions=list(partitions))]


def at(topic: str = "t", **positions: int) -> list[PositionTopic]:
    """``at(p0=5)``"""
    rows = [PositionPartition(partition=int(p[1:]), position=n) for p, n in positions.items()]
    return [PositionTopic(topic=topic, partitions=rows)]


def told(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, row.partition): row.position
        for topic in response.position
        for row in topic.partitions
    }


def asked(response: Any) -> dict[str, list[int]]:
    return {topic.topic: topic.partitions for topic in response.need_position}


def commit(driver: ConsumerDriver, index: int, offset: int, **fields: Any) -> None:
    topic_id = driver.image.topics["t"].topic_id
    request = commit_request("t", {index: offset}, topic_id=topic_id, **fields)
    answer = driver.send(request, version=9)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_consumer_learns_where_another_one_is(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    driver.enter("b", "t")
    response = driver.beat("b", 3, need_position=need(0, 1))
    assert told(response) == {("t", 0): -1, ("t", 1): -1}
    assert asked(response) == {"t": [0, 1]}
    response = driver.beat("a", 2)
    assert asked(response) == {"t": [0, 1]}
    assert told(response) == {}, "it has asked for none"
    driver.beat("a", 2, position=at(p0=7))
    assert told(driver.beat("b", 3, need_position=need(0, 1))) == {("t", 0): 7, ("t", 1): -1}


def test_who_never_speaks_of_positions_is_told_of_none(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    response = driver.beat("a", 2)
    assert (response.need_position, response.position) == ([], [])
    assert len(driver.shard.positions) == 0


def test_the_committed_offset_counts_where_it_is_ahead(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    commit(driver, 0, 5, member_id="a", generation_id_or_member_epoch=2)
    asking: dict[str, Any] = {"need_position": need(0)}
    assert told(driver.beat("a", 2, position=at(p0=3), **asking)) == {("t", 0): 5}
    assert told(driver.beat("a", 2, position=at(p0=8), **asking)) == {("t", 0): 8}
    assert told(driver.beat("a", 2, **asking)) == {("t", 0): 5}, "it no longer says where it is"


def test_who_left_is_not_believed_any_more(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    driver.enter("b", "t")
    driver.beat("a", 2, position=at(p0=9), need_position=need(2))
    assert told(driver.beat("b", 3, need_position=need(0))) == {("t", 0): 9}
    driver.beat("a", -1)
    response = driver.beat("b", 3, need_position=need(0))
    assert (told(response), asked(response)) == ({("t", 0): -1}, {"t": [0]})


def test_a_need_ends_with_the_heartbeat_that_has_none(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    driver.beat("a", 2, need_position=need(0))
    response = driver.beat("a", 2)
    assert asked(response) == {}
    assert len(driver.shard.positions) == 0


def test_partitions_that_do_not_exist_are_not_remembered(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    response = driver.beat("a", 2, need_position=need(3), position=at(topic="gone", p0=1))
    assert (told(response), asked(response)) == ({}, {})
    assert len(driver.shard.positions) == 0


def lives(driver: ConsumerDriver, epoch: int) -> None:
    """Let the topic's partitions have this partition epoch."""
    topic = driver.image.topics["t"]
    parts = tuple(part._replace(partition_epoch=epoch) for part in topic.partitions)
    driver.image = driver.image.with_topics(topic._replace(partitions=parts))


def test_positions_in_another_topic_of_the_name_do_not_count(driver: ConsumerDriver) -> None:
    lives(driver, 5)
    driver.enter("a", "t")
    driver.enter("b", "t")
    driver.beat("a", 2, position=life(at(p0=7, p1=8), 5) + life(at(p2=9), 4) + life(at(p1=1), 6))
    response = driver.beat("b", 3, need_position=need(0, 1, 2))
    assert told(response) == {("t", 0): 7, ("t", 1): 8, ("t", 2): -1}
    assert {row.partition_epoch for topic in response.position for row in topic.partitions} == {5}
    lives(driver, 6)  # it was deleted and created again
    response = driver.beat("b", 3, need_position=need(0, 1, 2))
    assert told(response) == {("t", 0): -1, ("t", 1): -1, ("t", 2): -1}
    driver.beat("a", 2, position=life(at(p0=7), 5))  # it does not know that
    assert told(driver.beat("b", 3, need_position=need(0))) == {("t", 0): -1}
    driver.beat("a", 2, position=life(at(p0=3), 6))
    assert told(driver.beat("b", 3, need_position=need(0))) == {("t", 0): 3}


def life(topics: list[PositionTopic], epoch: int) -> list[PositionTopic]:
    """The same, of partitions with this partition epoch."""
    for topic in topics:
        for row in topic.partitions:
            row.partition_epoch = epoch
    return topics


def test_a_refused_heartbeat_changes_nothing(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    driver.beat("a", 2, position=at(p0=3))
    refused = driver.beat("a", 99, position=at(p0=50))
    assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert told(driver.beat("a", 2, position=at(p0=4), need_position=need(0))) == {("t", 0): 4}


def test_the_classic_protocol_has_them_too(driver: ConsumerDriver) -> None:
    joined = driver.join(member_id="", version=3)
    driver.advance(3000)
    generation, member = joined.response.generation_id, joined.response.member_id
    driver.sync(member, generation, {member: b""})
    commit(driver, 0, 5, member_id=member, generation_id_or_member_epoch=generation)
    request = Ask.Heartbeat(
        group_id="g",
        member_id=member,
        generation_id=generation,
        need_position=need(0, 1),
        position=at(p1=4),
    )
    response = driver.send(request)
    assert told(response) == {("t", 0): 5, ("t", 1): 4}
    assert asked(response) == {"t": [0, 1]}
