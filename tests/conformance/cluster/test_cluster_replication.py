"""Three real brokers, each in its own rack: the in-sync replicas while brokers are stopped and come
back, what acks=all requires of them, and which consumers are sent to another broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from tests.beside.librdkafka import read_first
from tests.beside.waiting import until
from tests.broker.harness.wire import ask
from tests.conformance.kstore_cluster import KstoreCluster
from tests.record_requests import fetch_request, only, produce_request

pytestmark = pytest.mark.slow
TIMEOUT_S = 60
SETTINGS = {
    "replica.lag.time.max.ms": "1000",
    "kstore.coordination.session.timeout.ms": "60000",  # a stopped process stays in the cluster
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreCluster]:
    made = KstoreCluster(tmp_path_factory.mktemp("cluster"), 0, overrides=SETTINGS)
    for node_id in (1, 2, 3):
        made.add(node_id, {"broker.rack": f"rack{node_id}"})
    with made:
        yield made


def write(cluster: KstoreCluster, node_id: int, topic: str, *, timeout_ms: int = 30_000) -> Any:
    """The answer for one record with acks=all, and the endpoints beside it."""
    asked = produce_request(topic, build_batch([b"v"]), acks=-1, timeout_ms=timeout_ms)
    response = ask(cluster.brokers[node_id], asked, 12)
    return only(response), response.node_endpoints


def read(cluster: KstoreCluster, node_id: int, topic: str, offset: int, rack: str = "") -> Any:
    """The answer for a consumer of that rack, and the endpoints beside it."""
    asked = fetch_request(cluster.topic(topic).topic_id, offset, rack_id=rack)
    response = ask(cluster.brokers[node_id], asked, 17)
    return response.responses[0].partitions[0], response.node_endpoints


def test_the_isr_follows_what_followers_do_and_acks_all_the_isr(
    cluster: KstoreCluster, topic: str
) -> None:
    me = cluster.wait_for_controller()  # it has to run, as it decides
    near, far = {1, 2, 3} - {me}
    replicas = {0: (me, near, far)}
    cluster.create_topic(topic, replicas=replicas, configs={"min.insync.replicas": "2"})
    cluster.wait_for_leader(topic)
    assert write(cluster, me, topic)[0].error_code == 0
    try:
        cluster.pause(far)
        assert write(cluster, me, topic)[0].error_code == 0  # once it is out of the ISR
        until(lambda: cluster.isr(topic, node_id=me) == {me, near}, "one is out of the ISR")
        cluster.pause(near)
        answer, _ = write(cluster, me, topic, timeout_ms=300)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        until(lambda: cluster.isr(topic, node_id=me) == {me}, "the leader is alone")
        answer, _ = write(cluster, me, topic)
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    finally:
        cluster.resume()
    cluster.wait_for_isr(topic, {1, 2, 3})
    answer, _ = write(cluster, me, topic)
    assert (answer.error_code, answer.base_offset) == (0, 3)


def test_who_asks_the_wrong_broker_is_told_the_leader_and_its_address(
    cluster: KstoreCluster, topic: str
) -> None:
    cluster.create_topic(topic, replicas={0: (2, 3)})
    cluster.wait_for_leader(topic)
    host, port = cluster.brokers[2].bootstrap.split(":")
    for node_id in (1, 3):  # one that has no replica, and one that follows
        answer, [endpoint] = write(cluster, node_id, topic)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, host, int(port))
    answer, [endpoint] = read(cluster, 1, topic, 0)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, endpoint.node_id, endpoint.rack) == (2, 2, "rack2")


def test_records_are_deleted_on_all_replicas_of_an_idle_topic(
    cluster: KstoreCluster, topic: str
) -> None:
    cluster.create_topic(topic, replicas={0: (1, 2, 3)})
    leader = cluster.wait_for_leader(topic)
    for _ in range(3):
        assert write(cluster, leader, topic)[0].error_code == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 2
    for node_id in (1, 2, 3):
        assert read(cluster, node_id, topic, 3)[0].log_start_offset == 2


def test_consumers_read_in_their_rack(cluster: KstoreCluster, topic: str) -> None:
    cluster.create_topic(topic, replicas={0: (1, 2, 3)})
    cluster.wait_for_leader(topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for each in range(100):
        producer.produce(topic, str(each))
    assert producer.flush(TIMEOUT_S) == 0
    until(
        lambda: read(cluster, 1, topic, 0, "rack3")[0].preferred_read_replica == 3,
        "the leader knows that broker 3 has the first record",
    )
    assert read(cluster, 1, topic, 0, "rack1")[0].preferred_read_replica == -1
    until(
        lambda: read(cluster, 3, topic, 0)[0].high_watermark == 100,
        "the follower has heard of what is committed, with nothing new to copy",
    )
    assert read(cluster, 3, topic, 0)[0].error_code == 0
    found = read_first(cluster.bootstrap, topic, 100, settings={"client.rack": "rack3"})
    assert [each.value() for each in found] == [b"%d" % each for each in range(100)]
