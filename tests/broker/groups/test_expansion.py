"""Partition expansion (KIP-253) through a socket: producers with an old count are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kstore.broker.coordination import znodes
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import NeedPositionTopic, PositionPartition, PositionTopic
from tests.broker.harness.topic_client import TopicClient, held
from tests.conformance.kstore_broker import KstoreBroker

Start = Callable[..., KstoreBroker]
QUICK = {
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
ORDERED = {"kstore_ordered_expansion": "true"}


@pytest.fixture
def client(start_broker: Start) -> TopicClient:
    return TopicClient(start_broker(QUICK))


def priors_of(client: TopicClient, name: str, index: int) -> dict[int, int]:
    answer = client.priors(name, index)
    assert answer.error_code == 0
    return {row.partition_index: row.leader_epoch for row in answer.prior_leader_epochs}


def test_who_distributes_over_the_old_number_is_refused(client: TopicClient) -> None:
    client.create("t", 2)
    assert client.produce("t", count=2).error_code == 0
    client.grow("t", 4)
    for index in (0, 3):
        assert client.produce("t", index, count=2).error_code == ErrorCode.INVALID_PARTITION_COUNT
    assert client.produce("t", 0, count=4).base_offset == 1
    assert client.produce("t", 0).base_offset == 2, "who says no number is let in"


def test_the_thresholds_are_where_the_old_number_ended(client: TopicClient) -> None:
    client.create("t", 2)
    client.produce("t", 0, records=5)
    client.grow("t", 3)
    assert priors_of(client, "t", 2) == {0: 0, 1: 0}
    assert priors_of(client, "t", 0) == {}
    assert client.priors("t", 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.priors("no such/topic", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(2):
        assert client.epoch_end("t", 0, 0).end_offset == 5
        assert client.epoch_end("t", 1, 0).end_offset == 0
        client.produce("t", 0, records=7)
        client.produce("t", 1)


def test_a_second_expansion_knows_of_the_first(client: TopicClient) -> None:
    client.create("t")
    client.produce("t", records=2)
    client.grow("t", 2)
    client.produce("t", 1, records=3)
    client.grow("t", 3)
    assert priors_of(client, "t", 1) == {0: 0}
    assert priors_of(client, "t", 2) == {0: 1, 1: 1}
    assert client.epoch_end("t", 0, 1).end_offset == 2, "nothing was written in epoch 1"
    assert client.epoch_end("t", 1, 1).end_offset == 3
    [topic] = client.metadata("t").topics
    assert [row.leader_epoch for row in topic.partitions] == [2, 2, 2]
    assert client.priors("t", 2).partition_epoch == client.epochs("t")[2] == 3


@pytest.mark.slow
def test_an_expansion_outlives_kill_9(start_broker: Start) -> None:
    broker = start_broker()
    client = TopicClient(broker)
    client.create("t")
    client.produce("t", records=2)
    client.grow("t", 2)
    broker.kill()
    broker.start()
    client = TopicClient(broker)
    assert priors_of(client, "t", 1) == {0: 0}
    assert client.produce("t", 0, count=2).base_offset == 2
    assert client.epoch_end("t", 0, 0).end_offset == 2


def test_a_stop_in_the_middle_of_an_expansion_is_gone_on_from(start_broker: Start) -> None:
    broker = start_broker()
    client = TopicClient(broker)
    client.create("t", 2)
    client.produce("t", 1, records=4)
    broker.stop()
    store = LmdbStore(broker.log_dir / ".coordination")
    topic = znodes.read_topic(store, "t")
    node = topic.partitions[0].leader
    znodes.begin_expansion(store, topic, [(node,), (node,)])
    store.close()
    broker.start()
    client = TopicClient(broker)
    assert client.epochs("t") == [1, 2, 3, 4]
    assert priors_of(client, "t", 3) == {0: 1, 1: 1}
    assert client.epoch_end("t", 1, 1).end_offset == 4
    assert client.produce("t", 3, count=4).error_code == 0
    assert client.produce("t", 0, count=2).error_code == ErrorCode.INVALID_PARTITION_COUNT


# ---- consumers ----


def test_positions_go_through_heartbeats(client: TopicClient) -> None:
    client.create("t", 2)
    client.beat("a", 0, subscribed_topic_names=["t"])
    need = [NeedPositionTopic(topic="t", partitions=[0, 1])]
    at = [PositionTopic(topic="t", partitions=[PositionPartition(partition=0, position=8)])]
    answer = client.beat("a", 2, need_position=need, position=at)
    assert [(row.partition, row.position) for row in answer.position[0].partitions] == [
        (0, 8), (1, -1),
    ]  # fmt: skip
    assert answer.need_position == need
    assert client.commit("t", {1: 3}, group_id="g", member_id="a",
                         generation_id_or_member_epoch=2) == [0]  # fmt: skip
    answer = client.beat("a", 2, need_position=need)
    assert [row.position for row in answer.position[0].partitions] == [-1, 3]


def test_a_new_partition_is_held_back_until_the_others_are_read(client: TopicClient) -> None:
    client.create("t", 2, **ORDERED)
    client.produce("t", 0, records=5)
    client.produce("t", 1, records=3)
    assert held(client.beat("a", 0, subscribed_topic_names=["t"])) == [0, 1]
    client.grow("t", 3)
    client.produce("t", 0, records=5)
    client.produce("t", 2)
    member = {"member_id": "a", "generation_id_or_member_epoch": 2}
    assert held(client.beat("a", 2)) is None
    assert client.commit("t", {0: 4, 1: 3}, **member) == [0, 0]
    assert held(client.beat("a", 2)) is None
    assert client.commit("t", {0: 5}, **member) == [0]
    answer = client.beat("a", 2)
    assert (answer.member_epoch, held(answer)) == (3, [0, 1, 2])


def test_what_is_held_back_stays_so_through_a_restart(start_broker: Start) -> None:
    broker = start_broker(QUICK)
    client = TopicClient(broker)
    client.create("t", **ORDERED)
    client.produce("t", records=5)
    client.grow("t", 2)
    assert held(client.beat("a", 0, subscribed_topic_names=["t"])) == [0]
    broker.kill()
    broker.start()
    client = TopicClient(broker)
    answer = client.beat("a", 2)
    while answer.error_code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ):  # fmt: skip
        answer = client.beat("a", 2)
    assert held(answer) is None
    member = {"member_id": "a", "generation_id_or_member_epoch": 2}
    assert client.commit("t", {0: 5}, **member) == [0]
    assert held(client.beat("a", 2)) == [0, 1]


def test_without_the_setting_nothing_is_held_back(client: TopicClient) -> None:
    client.create("t")
    client.produce("t", records=5)
    client.beat("a", 0, subscribed_topic_names=["t"])
    client.grow("t", 2)
    assert held(client.beat("a", 2)) == [0, 1]
