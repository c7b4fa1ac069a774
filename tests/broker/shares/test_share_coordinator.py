"""The share coordinator of a real broker: crashes, deletions in its log, and rights."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from uuid import uuid4

import pytest

import kstore
from kstore.broker.state.shares.persisted import SharePartitionKey, StateBatch
from kstore.errors import ErrorCode
from tests.broker.harness.share_state_client import ShareStateClient
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import list_request

Start = Callable[..., KstoreBroker]
TOPIC = "__share_group_state"
ONE = {"share.coordinator.state.topic.num.partitions": "1"}
OFTEN = {
    "share.coordinator.state.topic.prune.interval.ms": "20",
    "share.coordinator.cold.partition.snapshot.interval.ms": "20",
}
PATIENCE_S = 30.0
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_the_first_question_makes_the_topic_as_kafka_does(start_broker: Start) -> None:
    client = ShareStateClient(start_broker())
    topic_id = client.make_topic("t", 1)
    client.coordinator(SharePartitionKey("g", topic_id, 0))
    [made] = [t for t in client.call(Ask.Metadata(topics=None)).topics if t.name == TOPIC]
    assert made.is_internal
    assert len(made.partitions) == 50
    asked = {"resource_type": 2, "resource_name": TOPIC}
    told = client.call(Ask.DescribeConfigs(resources=[asked])).results[0].configs
    assert {row.name: row.value for row in told if row.config_source == 1} == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }
    client.close()


@pytest.mark.slow
def test_what_was_answered_is_there_after_kill_9(start_broker: Start) -> None:
    settings = {"share.coordinator.snapshot.update.records.per.snapshot": "7"}
    broker = start_broker(settings | {"share.coordinator.state.topic.num.partitions": "3"})
    client = ShareStateClient(broker)
    topic_id = client.make_topic("t", 4)
    keys = [SharePartitionKey("g", topic_id, index) for index in range(4)]
    chance = random.Random(5)
    for key in keys:
        client.wait_served(key)
        assert client.initialize(key, 1, 0).error_code == ErrorCode.NONE
    for number in range(3):
        for step in range(100):
            first = 10 * step + chance.randrange(8)
            batch = StateBatch(first, first + chance.randrange(8), chance.choice([0, 2]), number)
            row = client.write(chance.choice(keys), 1, 0, -1, step, (batch,))
            assert row.error_code == ErrorCode.NONE
        before = [(client.read(key, 0), client.read_summary(key, 0)) for key in keys]
        client.close()
        broker.kill()
        broker.start()
        client = ShareStateClient(broker)
        for key in keys:
            client.wait_served(key)
        assert [(client.read(key, 0), client.read_summary(key, 0)) for key in keys] == before
    client.close()


def test_records_before_the_oldest_snapshot_are_deleted(start_broker: Start) -> None:
    # The quiet one is written again because the busy one has had snapshots, as in Kafka.
    limit = {"share.coordinator.snapshot.update.records.per.snapshot": "10"}
    broker = start_broker(ONE | OFTEN | limit)
    client = ShareStateClient(broker)
    topic_id = client.make_topic("t", 2)
    busy, quiet = (SharePartitionKey("g", topic_id, index) for index in range(2))
    for key in (busy, quiet):
        client.wait_served(key)
        assert client.initialize(key, 1, 0).error_code == ErrorCode.NONE
    for step in range(50):
        client.write(busy, 1, 0, step, 0, (StateBatch(step, step, 2, 1),))
    before = [client.read(key, 0) for key in (busy, quiet)]
    deadline = time.monotonic() + PATIENCE_S
    start = list_request(TOPIC, -2)
    while client.call(start).topics[0].partitions[0].offset < 40:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.close()
    broker.kill()
    broker.start()
    client = ShareStateClient(broker)
    client.wait_served(busy)
    assert [client.read(key, 0) for key in (busy, quiet)] == before
    client.close()


def test_the_state_of_a_deleted_topic_is_forgotten(start_broker: Start) -> None:
    broker = start_broker(ONE)
    client = ShareStateClient(broker)
    gone, kept = client.make_topic("gone", 2), client.make_topic("kept", 1)
    keys = [
        SharePartitionKey("g", gone, 0),
        SharePartitionKey("g", gone, 1),
        SharePartitionKey("h", kept, 0),
    ]
    for key in keys:
        client.wait_served(key)
        assert client.initialize(key, 1, 0).error_code == ErrorCode.NONE
    topic = {"name": "gone"}
    told = client.call(Ask.DeleteTopics(topics=[topic], timeout_ms=30_000)).responses[0]
    assert told.error_code == ErrorCode.NONE
    assert client.read(keys[2], 0).error_code == ErrorCode.NONE
    client.close()
    broker.stop()
    with kstore.open_log_dir(broker.log_dir) as opened:
        records = list(opened.log(TOPIC, 0).read(0))
    tombstones = {record.key for record in records if record.value is None}
    assert len(tombstones) == 2
    assert all(gone.bytes in (key or b"") for key in tombstones)


def test_only_who_may_act_for_the_cluster_asks_for_the_state(start_broker: Start) -> None:
    broker = start_broker({"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"})
    client = ShareStateClient(broker)
    key = SharePartitionKey("g", uuid4(), 0)
    find = Ask.FindCoordinator(key_type=2, coordinator_keys=[str(key)])
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert client.call(find).coordinators[0].error_code == denied
    for row in (
        client.initialize(key, 1, 0),
        client.read(key, 0),
        client.write(key, 1, 0),
        client.delete(key),
        client.read_summary(key, 0),
    ):
        assert row.error_code == denied
    client.close()


@pytest.mark.parametrize(
    "version", [1, *(pytest.param(version, marks=pytest.mark.slow) for version in (3, 5))]
)
def test_old_versions_of_find_coordinator_know_no_share_partitions(
    start_broker: Start, version: int
) -> None:
    client = ShareStateClient(start_broker())
    key = str(SharePartitionKey("g", uuid4(), 0))
    old = version < 4
    request = Ask.FindCoordinator(
        key_type=2, key=key if old else "", coordinator_keys=[] if old else [key]
    )
    answer = client.call(request, version)
    told = answer if old else answer.coordinators[0]
    assert told.error_code == ErrorCode.INVALID_REQUEST
    client.close()
