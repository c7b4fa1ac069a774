"""Three real brokers with a shared folder, and unmodified clients: acknowledged records survive any
kill, and every broker answers every request.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kstore.errors import ErrorCode
from tests.beside.librdkafka import read_first, write_all
from tests.beside.programs import output_of
from tests.beside.waiting import until
from tests.broker.harness.wire import Wire, ask
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster
from tests.plain_messages import Ask

pytestmark = [pytest.mark.slow, pytest.mark.own_python]
TIMEOUT_S = 60
SETTINGS = THREE_REPLICAS
PRODUCER = {
    "acks": "all", "enable.idempotence": True, "retry.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100, "message.timeout.ms": TIMEOUT_S * 1000,
}  # fmt: skip


@pytest.fixture
def whole(cluster: KstoreCluster) -> KstoreCluster:
    cluster.start()
    until(lambda: cluster.broker_ids() == {1, 2, 3}, "all brokers are alive")
    return cluster


def produce(cluster: KstoreCluster, topic: str, values: list[str], partition: int = 0) -> None:
    """Write with acks=all; every record is acknowledged."""
    write_all(cluster.bootstrap, topic, values, [partition], PRODUCER)


def read(cluster: KstoreCluster, topic: str, count: int, partition: int = 0) -> list[str]:
    found = read_first(cluster.bootstrap, topic, count, partition)
    return [each.value().decode() for each in found]


def test_what_is_written_to_three_brokers_outlives_its_leader(
    whole: KstoreCluster, topic: str
) -> None:
    whole.create_topic(topic, 1, 3)
    kcat = ["kcat", "-b", whole.bootstrap, "-t", topic]
    output_of([*kcat, "-P", "-p", "0", "-X", "acks=all"], input="a\nb\nc\n")
    assert output_of([*kcat, "-C", "-e", "-q"]) == "a\nb\nc\n"
    first = whole.leader(topic)
    whole.kill(first)
    produce(whole, topic, ["d", "e"])
    assert read(whole, topic, 5) == ["a", "b", "c", "d", "e"]
    assert whole.leader(topic) != first
    whole.start(first)
    whole.wait_for_isr(topic, {1, 2, 3})
    second = whole.leader(topic)
    whole.kill(second)
    produce(whole, topic, ["f"])
    assert read(whole, topic, 6) == ["a", "b", "c", "d", "e", "f"]


def test_a_producer_that_goes_on_loses_and_doubles_nothing(
    whole: KstoreCluster, topic: str
) -> None:
    whole.create_topic(topic, 1, 3)
    acknowledged: list[str] = []
    producer = Producer(PRODUCER | {"bootstrap.servers": whole.bootstrap, "linger.ms": 1})

    def done(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        acknowledged.append(message.value().decode())  # type: ignore[attr-defined]

    killed = whole.leader(topic)
    for number in range(600):
        producer.produce(topic, str(number), partition=0, on_delivery=done)
        if number % 10 == 0:
            producer.poll(0.005)
        if number == 300:
            until(lambda: producer.poll(0.01) or len(acknowledged) > 100, "some are acknowledged")
            whole.kill(killed)
    assert producer.flush(TIMEOUT_S) == 0
    assert acknowledged == [str(number) for number in range(600)]
    assert read(whole, topic, 600) == acknowledged


def test_any_broker_makes_grows_and_deletes_topics(whole: KstoreCluster, topic: str) -> None:
    controller = whole.controller_id()
    for node_id in whole.brokers:
        name = f"{topic}-{node_id}"
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
    until(lambda: not list(whole.folder.glob(f"broker*/kstore-logs/{topic}-*")), "no log is left")


def set_config(
    cluster: KstoreCluster, node_id: int, kind: Any, of: str, name: str, value: str
) -> None:
    """Sent by hand: librdkafka chooses the broker itself, and cannot set cluster-wide defaults."""
    with Wire(cluster.brokers[node_id]) as line:
        answer = line.configure(kind.value, of, **{name: value})
    assert answer.error_code == 0, answer


def config(cluster: KstoreCluster, node_id: int, kind: Any, of: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.brokers[node_id].bootstrap})
    asked = ConfigResource(kind, of)
    return str(admin.describe_configs([asked])[asked].result(TIMEOUT_S)[name].value)


def wait_for_config(cluster: KstoreCluster, kind: Any, of: str, name: str, value: str) -> None:
    for node_id in cluster.brokers:
        until(
            partial(lambda node: config(cluster, node, kind, of, name) == value, node_id),
            f"broker {node_id} knows that {name} is {value}",
        )


def test_what_is_set_on_one_broker_holds_on_all(whole: KstoreCluster, topic: str) -> None:
    whole.create_topic(topic, 1, 3)
    of_topic, broker = ResourceType.TOPIC, ResourceType.BROKER
    for node_id, name in ((1, "segment.ms"), (2, "segment.bytes"), (3, "segment.jitter.ms")):
        value = str(20_000_000 + node_id)
        set_config(whole, node_id, of_topic, topic, name, value)
        assert config(whole, node_id, of_topic, topic, name) == value, "it acts here at once"
    wait_for_config(whole, of_topic, topic, "segment.ms", "20000001")
    wait_for_config(whole, of_topic, topic, "segment.bytes", "20000002")
    wait_for_config(whole, of_topic, topic, "segment.jitter.ms", "20000003")
    for node_id in whole.brokers:
        value = str(1_000_000 + node_id)
        set_config(whole, node_id, broker, "", "log.retention.ms", value)
        wait_for_config(whole, of_topic, topic, "retention.ms", value)
    set_config(whole, 2, broker, "2", "log.cleaner.threads", "2")
    assert config(whole, 2, broker, "2", "log.cleaner.threads") == "2"


def test_metadata_tells_which_replicas_are_offline(whole: KstoreCluster, topic: str) -> None:
    whole.create_topic(topic, 1, 3)
    gone = next(i for i in whole.brokers if i != whole.leader(topic))
    whole.kill(gone)
    until(lambda: whole.broker_ids() == {1, 2, 3} - {gone}, "it is gone")
    (partition,) = whole.topic(topic).partitions
    assert set(partition.replicas) == {1, 2, 3}
    assert partition.offline_replicas == (gone,)
    whole.start(gone)
    until(lambda: whole.topic(topic).partitions[0].offline_replicas == (), "it is back")


def test_a_stopped_cluster_comes_back_with_everything(whole: KstoreCluster, topic: str) -> None:
    whole.create_topic(topic, 3, 3)
    for partition in range(3):
        produce(whole, topic, [f"{partition}-{i}" for i in range(20)], partition)
    assert whole.stop() == [0, 0, 0]
    whole.start()
    for partition in range(3):
        assert read(whole, topic, 20, partition) == [f"{partition}-{i}" for i in range(20)]
    produce(whole, topic, ["more"])
    assert read(whole, topic, 21)[-1] == "more"


def test_a_topic_deleted_while_a_broker_is_down_is_gone_when_it_is_back(
    whole: KstoreCluster, topic: str
) -> None:
    whole.create_topic(topic, 2, 3)
    produce(whole, topic, ["of the first"])
    gone = next(i for i in whole.brokers if i != whole.leader(topic))
    whole.kill(gone)
    until(lambda: gone not in whole.broker_ids(), "it is gone")
    admin = AdminClient({"bootstrap.servers": whole.bootstrap})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    whole.create_topic(topic, 1, 2)
    produce(whole, topic, ["of the second"])
    whole.start(gone)
    until(lambda: whole.broker_ids() == {1, 2, 3}, "it is back")
    logs = whole.brokers[gone].log_dir
    until(lambda: not list(logs.glob(f"{topic}-1*")), "its logs of the first topic are deleted")
    assert read(whole, topic, 1) == ["of the second"]


def test_any_broker_hands_admin_requests_on_to_the_controller(
    whole: KstoreCluster, topic: str
) -> None:
    whole.create_topic(topic, 1, 3)
    controller = whole.controller_id()
    for node_id in whole.brokers:
        elected = ask(
            whole.brokers[node_id],
            Ask.ElectLeaders(
                election_type=0,
                topic_partitions=[{"topic": topic, "partitions": [0]}],
                timeout_ms=TIMEOUT_S * 1000),
        )  # fmt: skip
        (row,) = elected.replica_election_results[0].partition_result
        assert row.error_code == ErrorCode.ELECTION_NOT_NEEDED, (node_id, controller)
        listed = ask(whole.brokers[node_id], Ask.ListPartitionReassignments(topics=None))
        assert (listed.error_code, listed.topics) == (0, [])


def test_a_replica_that_is_moved_takes_its_log_along(whole: KstoreCluster, topic: str) -> None:
    whole.create_topic(topic, replicas={0: [1, 2]})
    produce(whole, topic, [str(number) for number in range(100)])
    not_controller = next(i for i in whole.brokers if i != whole.controller_id())
    row = {"partition_index": 0, "replicas": [3, 2]}
    request = Ask.AlterPartitionReassignments(
        topics=[{"name": topic, "partitions": [row]}], timeout_ms=TIMEOUT_S * 1000
    )
    answer = ask(whole.brokers[not_controller], request)
    assert answer.responses[0].partitions[0].error_code == 0

    def done() -> bool:
        (partition,) = whole.topic(topic).partitions
        return set(partition.replicas) == set(partition.isr) == {2, 3}

    until(done, "the partition is on brokers 2 and 3")
    until(lambda: not list(whole.brokers[1].log_dir.glob(f"{topic}-0*")), "broker 1 has no log")
    assert read(whole, topic, 100) == [str(number) for number in range(100)]
    produce(whole, topic, ["100"])
