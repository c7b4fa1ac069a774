"""The admin client with three brokers: each item goes to its controller, leader or coordinator, and
requests outlive the broker that was to answer them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kstore.clients import AdminClient
from kstore.clients.admin import ConfigResource, NewTopic, ReplicaOnBroker
from kstore.errors import KafkaError
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.conformance.kstore_cluster import KstoreCluster

pytestmark = pytest.mark.slow

SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def admin(cluster: KstoreCluster) -> Iterator[AdminClient]:
    with AdminClient(cluster.bootstrap, default_api_timeout_ms=60_000) as client:
        yield client


def test_items_go_where_they_are_answered(
    cluster: KstoreCluster, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, replicas={0: [1, 2], 1: [2, 3], 2: [3, 1]})])
    partitions = [TopicPartition(topic, n) for n in range(3)]
    assert [row.leader for row in admin.describe_topics([topic])[0].partitions] == [1, 2, 3]
    assert set(admin.list_offsets(dict.fromkeys(partitions, "latest"))) == set(partitions)
    assert admin.delete_records(dict.fromkeys(partitions, -1)) == dict.fromkeys(partitions, 0)
    assert set(admin.describe_producers(partitions)) == set(partitions)

    groups = [f"{topic}-{n}" for n in range(12)]
    for group in groups:
        admin.alter_group_offsets(group, dict.fromkeys(partitions, 0))
    described = admin.describe_groups(groups)
    assert {each.coordinator for each in described.values()} == {1, 2, 3}
    assert {row.group_id for row in admin.list_groups()} >= set(groups)
    assert set(admin.delete_groups(groups)) == set(groups)

    ids = [f"{topic}-{n}" for n in range(12)]
    admin.fence_producers(ids)
    assert {each.coordinator for each in admin.describe_transactions(ids).values()} == {1, 2, 3}
    assert {row.transactional_id for row in admin.list_transactions()} >= set(ids)

    loggers = [ConfigResource("broker-logger", str(n)) for n in (1, 2, 3)]
    assert set(admin.describe_resource_configs(loggers)) == set(loggers)
    dirs = admin.describe_log_dirs()
    assert set(dirs) == {1, 2, 3}
    (own,) = dirs[2]
    admin.alter_replica_log_dirs({ReplicaOnBroker(topic, 0, 2): own})


def test_replicas_move_and_leaders_are_elected(
    cluster: KstoreCluster, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, replicas={0: [1, 2]})])
    tp = TopicPartition(topic, 0)
    admin.alter_partition_reassignments({tp: [3, 2]})
    until(lambda: not admin.list_partition_reassignments([tp]), "the move has ended")
    until(lambda: _replicas(admin, topic) == {2, 3}, "all know where it is")
    until(lambda: _elected(admin, tp) == 3, "the preferred leader leads")


def _replicas(admin: AdminClient, topic: str) -> set[int]:
    (row,) = admin.describe_topics([topic])[0].partitions
    return set(row.replicas)


def _elected(admin: AdminClient, tp: TopicPartition) -> int:
    admin.elect_leaders([tp], raise_errors=False)
    return admin.describe_topics([tp.topic])[0].partitions[0].leader


def test_a_request_outlives_the_broker_that_was_to_answer_it(
    cluster: KstoreCluster, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 6, 3)])
    partitions = [TopicPartition(topic, n) for n in range(6)]
    admin.list_offsets(dict.fromkeys(partitions, "latest"))
    admin.alter_group_offsets(topic, dict.fromkeys(partitions, 0))
    controller = admin.describe_cluster().controller_id
    cluster.kill(controller)
    assert set(admin.list_offsets(dict.fromkeys(partitions, "latest"))) == set(partitions)
    assert set(admin.list_group_offsets(topic)) == set(partitions)
    until(lambda: _created(admin, topic + "-after"), "a topic can be created")
    until(lambda: topic + "-after" in admin.list_topics(), "it is listed")
    cluster.start()
    until(lambda: len(admin.describe_cluster().brokers) == 3, "all are back")


def _created(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 1, 2)])
    except KafkaError as error:
        # Asked again after a lost connection, the first attempt may have made it.
        return type(error).__name__ == "TopicAlreadyExistsError"
    return True
