"""The controller of real brokers while they stop and start: no acknowledged record is lost."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.clients import Consumer, Producer
from kstore.errors import ErrorCode
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.broker.harness.wire import ask
from tests.conformance.kafka_broker import free_port
from tests.conformance.kstore_cluster import KstoreCluster
from tests.plain_messages import Ask

pytestmark = pytest.mark.slow
RECORDS = 200


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KstoreCluster]:
    with KstoreCluster(tmp_path, 4) as brokers:
        yield brokers


def write(cluster: KstoreCluster, topic: str, first: int, count: int = RECORDS) -> None:
    """Acknowledged by all in sync."""
    with Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(first, first + count):
            producer.send(topic, str(number).encode(), partition=0)
        producer.flush()


def read(cluster: KstoreCluster, topic: str, count: int) -> list[int]:
    """The first records of partition 0."""
    found: list[int] = []
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def enough() -> bool:
            found.extend(int(record.value or b"") for record in consumer.poll(200))
            return len(found) >= count

        until(enough, f"{count} records of {topic}")
    return found


def test_a_partition_moves_to_other_brokers_with_all_its_records(cluster: KstoreCluster) -> None:
    cluster.create_topic("moved", replicas={0: [1, 2]})
    write(cluster, "moved", 0)
    row = {"partition_index": 0, "replicas": [3, 4]}
    request = Ask.AlterPartitionReassignments(topics=[{"name": "moved", "partitions": [row]}])
    response = ask(cluster.brokers[2], request)
    assert response.error_code == ErrorCode.NONE
    assert [row.error_code for row in response.responses[0].partitions] == [ErrorCode.NONE]
    cluster.wait_for_isr("moved", [3, 4])
    assert cluster.leader("moved") == 3
    assert ask(cluster.brokers[1], Ask.ListPartitionReassignments()).topics == []
    until(
        lambda: (
            not any(
                (cluster.folder / f"broker{node}" / "data" / "moved-0").exists() for node in (1, 2)
            )
        ),
        "the brokers that it left have deleted it",
    )
    write(cluster, "moved", RECORDS)
    assert read(cluster, "moved", 2 * RECORDS) == list(range(2 * RECORDS))


def test_the_first_replica_leads_again_when_it_is_asked_for(cluster: KstoreCluster) -> None:
    cluster.create_topic("led", replicas={0: [2, 3, 4]})
    write(cluster, "led", 0)
    cluster.kill(2)
    assert cluster.wait_for_leader("led", not_=2) == 3
    write(cluster, "led", RECORDS)
    cluster.start(2)
    cluster.wait_for_isr("led", [2, 3, 4])
    assert cluster.leader("led") == 3
    asked = Ask.ElectLeaders(topic_partitions=[{"topic": "led", "partitions": [0]}])
    [topic] = ask(cluster.brokers[1], asked).replica_election_results
    assert [row.error_code for row in topic.partition_result] == [ErrorCode.NONE]
    until(lambda: cluster.leader("led") == 2, "broker 2 leads")
    [topic] = ask(cluster.brokers[4], asked).replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    assert read(cluster, "led", 2 * RECORDS) == list(range(2 * RECORDS))


def test_a_stopping_broker_and_a_killed_controller_leave_every_partition_led(
    cluster: KstoreCluster,
) -> None:
    cluster.create_topic("many", 8, 3)
    controller = cluster.wait_for_controller()
    stopping = next(node for node in (1, 2, 3, 4) if node != controller)
    cluster.stop(stopping)

    def led_without(*gone: int) -> bool:
        rows = cluster.topic("many").partitions
        return all(row.leader not in (-1, *gone) for row in rows)

    until(lambda: led_without(stopping), "others lead")
    cluster.kill(controller)
    cluster.wait_for_controller(not_=controller)
    until(lambda: led_without(stopping, controller), "others lead, under another controller")
    cluster.start(stopping, controller)
    for partition in range(8):
        rows = {row.partition: row for row in cluster.topic("many").partitions}
        cluster.wait_for_isr("many", rows[partition].replicas, partition)


def test_a_topic_grows_and_goes_while_brokers_are_away(cluster: KstoreCluster) -> None:
    cluster.create_topic("t", replicas={0: [1, 2, 3], 1: [2, 3, 1]})
    write(cluster, "t", 0)
    cluster.kill(3)
    with cluster.admin() as admin:
        admin.create_partitions("t", 4)
    assert len(cluster.topic("t").partitions) == 4
    cluster.start(3)
    cluster.wait_for_isr("t", [1, 2, 3])
    assert read(cluster, "t", RECORDS) == list(range(RECORDS))
    cluster.kill(3)
    with cluster.admin() as admin:
        admin.delete_topics(["t"])
    cluster.create_topic("t", replicas={0: [1, 2]})
    write(cluster, "t", 5000)
    cluster.start(3)
    until(
        lambda: not (cluster.folder / "broker3" / "data" / "t-0").exists(),
        "broker 3 has deleted what was deleted while it was away",
    )
    assert read(cluster, "t", RECORDS) == list(range(5000, 5000 + RECORDS))


def test_the_cluster_is_seen_in_the_metrics(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    cluster = KstoreCluster(tmp_path, 0)
    cluster.add(1, {"kstore.metrics.listener": url})
    cluster.add(2)

    def gauge(name: str) -> int:
        with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        [value] = [line.split()[1] for line in lines if line.startswith(f"kstore_{name} ")]
        return int(value)

    with cluster:
        cluster.create_topic("seen", replicas={0: [1, 2], 1: [1, 2]})
        cluster.create_topic("single", replicas={0: [2]})
        until(lambda: gauge("led_partitions") == 2, "broker 1 leads two")
        assert gauge("under_replicated_partitions") == 0
        cluster.kill(2)
        until(lambda: gauge("active_controller") == 1, "broker 1 is the controller")
        until(lambda: gauge("under_replicated_partitions") == 2, "both lack a replica")
        until(lambda: gauge("controller_offline_partitions") == 1, "nobody leads one")
        assert gauge("controller_live_brokers") == 1
