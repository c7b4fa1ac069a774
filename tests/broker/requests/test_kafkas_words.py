"""What clients expect besides error codes: Kafka's words, a controller, and new topics."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from kstore.errors import ErrorCode
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicClient]:
    with KstoreBroker(tmp_path_factory.mktemp("words")) as broker:
        yield TopicClient(broker, extended=False)


def test_a_topic_that_exists(client: TopicClient) -> None:
    name = f"t{uuid4().hex}"
    client.create(name)
    new = {"name": name, "num_partitions": 1, "replication_factor": 1}
    [answer] = client.call(Ask.CreateTopics(topics=[new], timeout_ms=30_000)).topics
    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert answer.error_message.startswith(f"Topic '{name}' already exists.")


def test_a_group_that_does_not(client: TopicClient) -> None:
    name = f"g{uuid4().hex}"
    while True:
        [answer] = client.call(Ask.ConsumerGroupDescribe(group_ids=[name])).groups
        if answer.error_code not in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ):  # fmt: skip
            break
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message.startswith(f"Group {name} not found.")


def test_the_broker_that_answers_is_called_the_controller(client: TopicClient) -> None:
    metadata = client.call(Ask.Metadata(topics=[]))
    cluster = client.call(Ask.DescribeCluster())
    [broker] = metadata.brokers
    assert metadata.controller_id == cluster.controller_id == broker.node_id


def test_the_first_metadata_of_a_created_topic_has_its_leaders(client: TopicClient) -> None:
    asked = {"name": f"t{uuid4().hex}"}
    [topic] = client.call(Ask.Metadata(topics=[asked])).topics
    assert topic.error_code == ErrorCode.NONE
    assert all(row.leader_id >= 0 and row.error_code == 0 for row in topic.partitions)
    assert topic.partitions
