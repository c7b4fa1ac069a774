"""Three real brokers that share a folder, and unmodified clients: what is acknowledged is there,
whoever is killed, and any broker can be asked for anything.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kstore.errors import ErrorCode
from kstore.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kstore.protocol.registry import APIS, decode_response, encode_request
from tests.conformance.kstore_cluster import KstoreCluster, until
from tests.conformance.wire import read_frame

pytestmark = pytest.mark.slow
TIMEOUT_S = 60
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreCluster]:
    """Brokers 1 to 3; a test that ends one starts it again."""
    made = KstoreCluster(tmp_path_factory.mktemp("cluster"), overrides=SETTINGS)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def whole(cluster: KstoreCluster) -> KstoreCluster:
    """The cluster with all its brokers."""
    cluster.start()
    until(lambda: cluster.broker_ids() == {1, 2, 3}, "all brokers are alive")
    return cluster


def kcat(*arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", *arguments], input=given, capture_output=True, timeout=TIMEOUT_S, check=True
    )
    return done.stdout


def produce(cluster: KstoreCluster, topic: str, values: list[str], partition: int = 0) -> None:
    """Write with acks=all; every record is acknowledged."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "message.timeout.ms": TIMEOUT_S * 1000,
        }
    )
    for value in values:
        producer.produce(
            topic, value, partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def read(cluster: KstoreCluster, topic: str, count: int, partition: int = 0) -> list[str]:
    """The first records of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 100,
        }
    )
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])

        def poll() -> bool:
            for message in consumer.consume(100, 0.2):
                if message.error() is None:
                    found.append(message.value().decode())
            return len(found) >= count

        until(poll, f"{count} records of {topic}")
    finally:
        consumer.close()
    return found


def ask(cluster: KstoreCluster, node_id: int, request: Any) -> Any:
    """One broker's answer to a request that the clients here have no call for."""
    api = APIS[request.API_KEY]
    host, _, port = cluster.brokers[node_id].bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(encode_request(request, api.max_version, 1, "test"))
        return decode_response(read_frame(connection), api.response, api.max_version)[1]


def test_what_is_written_to_three_brokers_outlives_its_leader(whole: KstoreCluster) -> None:
    whole.create_topic("outlives", 1, 3)
    kcat(
        "-P", "-b", whole.bootstrap, "-t", "outlives", "-p", "0", "-X", "acks=all",
        given=b"a\nb\nc\n",
    )  # fmt: skip
    assert kcat("-C", "-b", whole.bootstrap, "-t", "outlives", "-e", "-q") == b"a\nb\nc\n"
    first = whole.leader("outlives")
    whole.kill(first)
    produce(whole, "outlives", ["d", "e"])
    assert read(whole, "outlives", 5) == ["a", "b", "c", "d", "e"]
    assert whole.leader("outlives") != first
    whole.start(first)
    whole.wait_for_isr("outlives", {1, 2, 3})
    second = whole.leader("outlives")
    whole.kill(second)
    produce(whole, "outlives", ["f"])
    assert read(whole, "outlives", 6) == ["a", "b", "c", "d", "e", "f"]


def test_a_producer_that_goes_on_loses_and_doubles_nothing(whole: KstoreCluster) -> None:
    whole.create_topic("goes-on", 1, 3)
    acknowledged: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": whole.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "message.timeout.ms": TIMEOUT_S * 1000,
        }
    )

    def done(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        acknowledged.append(message.value().decode())  # type: ignore[attr-defined]

    killed = whole.leader("goes-on")
    for number in range(600):
        producer.produce("goes-on", str(number), partition=0, on_delivery=done)
        if number % 10 == 0:
            producer.poll(0.005)
        if number == 300:
            until(lambda: producer.poll(0.01) or len(acknowledged) > 100, "some are acknowledged")
            whole.kill(killed)
    assert producer.flush(TIMEOUT_S) == 0
    assert acknowledged == [str(number) for number in range(600)]
    assert read(whole, "goes-on", 600) == acknowledged


def test_any_broker_makes_grows_and_deletes_topics(whole: KstoreCluster) -> None:
    controller = whole.controller_id()
    for node_id in whole.brokers:
        name = f"made-by-{node_id}"
        admin = AdminClient({"bootstrap.servers": whole.brokers[node_id].bootstrap})
        admin.create_topics([NewTopic(name, 2, 3)])[name].result(TIMEOUT_S)
        admin.create_partitions([NewPartitions(name, 4)])[name].result(TIMEOUT_S)
        for other in whole.brokers:
            assert len(whole.topic(name, other).partitions) == 4, (node_id, other, controller)
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic(name, 1, 3)])[name].result(TIMEOUT_S)
        assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        admin.delete_topics([name])[name].result(TIMEOUT_S)
        for other in whole.brokers:
            assert (
                name
                not in AdminClient({"bootstrap.servers": whole.brokers[other].bootstrap})
                .list_topics(timeout=TIMEOUT_S)
                .topics
            )
    until(lambda: not list(whole.folder.glob("broker*/kstore-logs/made-by-*")), "no log is left")


def test_a_topic_config_set_on_one_broker_holds_on_all(whole: KstoreCluster) -> None:
    whole.create_topic("configured", 1, 3)
    entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "configured", incremental_configs=[entry])
    one = AdminClient({"bootstrap.servers": whole.brokers[1].bootstrap})
    one.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def told_by(node_id: int) -> str:
        admin = AdminClient({"bootstrap.servers": whole.brokers[node_id].bootstrap})
        asked = ConfigResource(ResourceType.TOPIC, "configured")
        value = admin.describe_configs([asked])[asked].result(TIMEOUT_S)["retention.ms"].value
        return str(value)

    for node_id in whole.brokers:
        until(lambda: told_by(node_id) == "123456", f"broker {node_id} knows")  # noqa: B023


def test_metadata_tells_which_replicas_are_offline(whole: KstoreCluster) -> None:
    whole.create_topic("offline", 1, 3)
    gone = next(i for i in whole.brokers if i != whole.leader("offline"))
    whole.kill(gone)
    until(lambda: whole.broker_ids() == {1, 2, 3} - {gone}, "it is gone")
    (partition,) = whole.topic("offline").partitions
    assert set(partition.replicas) == {1, 2, 3}
    assert partition.offline_replicas == (gone,)


def test_a_stopped_cluster_comes_back_with_everything(whole: KstoreCluster) -> None:
    whole.create_topic("comes-back", 3, 3)
    for partition in range(3):
        produce(whole, "comes-back", [f"{partition}-{i}" for i in range(20)], partition)
    assert whole.stop() == [0, 0, 0]
    whole.start()
    for partition in range(3):
        assert read(whole, "comes-back", 20, partition) == [f"{partition}-{i}" for i in range(20)]
    produce(whole, "comes-back", ["more"])
    assert read(whole, "comes-back", 21)[-1] == "more"


def test_a_topic_deleted_while_a_broker_is_down_is_gone_when_it_is_back(
    whole: KstoreCluster,
) -> None:
    whole.create_topic("deleted", 2, 3)
    produce(whole, "deleted", ["of the first"])
    gone = next(i for i in whole.brokers if i != whole.leader("deleted"))
    whole.kill(gone)
    until(lambda: gone not in whole.broker_ids(), "it is gone")
    admin = AdminClient({"bootstrap.servers": whole.bootstrap})
    admin.delete_topics(["deleted"])["deleted"].result(TIMEOUT_S)
    whole.create_topic("deleted", 1, 2)
    produce(whole, "deleted", ["of the second"])
    whole.start(gone)
    until(lambda: whole.broker_ids() == {1, 2, 3}, "it is back")
    logs = whole.brokers[gone].log_dir
    until(lambda: not list(logs.glob("deleted-1*")), "its logs of the first topic are deleted")
    assert read(whole, "deleted", 1) == ["of the second"]


def test_any_broker_hands_admin_requests_on_to_the_controller(whole: KstoreCluster) -> None:
    whole.create_topic("handed-on", 1, 3)
    controller = whole.controller_id()
    for node_id in whole.brokers:
        elected = ask(
            whole, node_id,
            ElectLeadersRequest(
                election_type=0,
                topic_partitions=[TopicPartitions(topic="handed-on", partitions=[0])],
                timeout_ms=TIMEOUT_S * 1000,
            ),
        )  # fmt: skip
        (row,) = elected.replica_election_results[0].partition_result
        assert row.error_code == ErrorCode.ELECTION_NOT_NEEDED, (node_id, controller)
        listed = ask(whole, node_id, ListPartitionReassignmentsRequest(topics=None))
        assert (listed.error_code, listed.topics) == (0, [])


def test_a_replica_that_is_moved_takes_its_log_along(whole: KstoreCluster) -> None:
    whole.create_topic("moved", replicas={0: [1, 2]})
    produce(whole, "moved", [str(number) for number in range(100)])
    not_controller = next(i for i in whole.brokers if i != whole.controller_id())
    row = ReassignablePartition(partition_index=0, replicas=[3, 2])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="moved", partitions=[row])], timeout_ms=TIMEOUT_S * 1000
    )
    answer = ask(whole, not_controller, request)
    assert answer.responses[0].partitions[0].error_code == 0

    def done() -> bool:
        (partition,) = whole.topic("moved").partitions
        return set(partition.replicas) == set(partition.isr) == {2, 3}

    until(done, "the partition is on brokers 2 and 3")
    until(lambda: not list(whole.brokers[1].log_dir.glob("moved-0*")), "broker 1 has no log")
    assert read(whole, "moved", 100) == [str(number) for number in range(100)]
    produce(whole, "moved", ["100"])
