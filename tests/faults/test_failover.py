"""kill -9 of leaders, and of the controller with them, as clients see it: during an election no
client gets an answer without a leader, with any coordination store. A real ZooKeeper would keep a
dead broker's session for two minutes here, longer than the test waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kstore.protocol.metadata.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from tests.beside.waiting import until
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.probes.peer import Peer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "kept"
KILLS = 2
NO_LEADER = -1
SETTINGS = {
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "120000",
    "kstore.metadata.leader.wait.ms": "10000",  # however busy the machine is
}


@pytest.fixture(params=["lmdb", pytest.param("zookeeper", marks=pytest.mark.java)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KstoreCluster]:
    connect = None
    if request.param == "zookeeper":
        connect = f"{request.getfixturevalue('zookeeper_server').bootstrap}/failover"
    with KstoreCluster(tmp_path, overrides=SETTINGS, zookeeper=connect) as running:
        yield running


def leaders_by(peer: Peer) -> set[int]:
    """The partition's leader by Metadata and by DescribeTopicPartitions."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    told: Any = peer.ask(asked, 12)
    described: Any = peer.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]), 0)
    return {answer.topics[0].partitions[0].leader_id for answer in (told, described)}


def kill(cluster: KstoreCluster, victim: int) -> list[set[int]]:
    """What the others say of the leader, in order, from the kill until they know another one."""
    others = [broker for node_id, broker in cluster.brokers.items() if node_id != victim]
    peers = [Peer("other", broker.host, broker.port) for broker in others]
    for peer in peers:
        assert leaders_by(peer) == {victim}
    told: list[set[int]] = []
    cluster.kill(victim)

    def all_know() -> bool:
        found = [leaders_by(peer) for peer in peers]
        told.extend(found)
        return not any(leaders & {victim, NO_LEADER} for leaders in found)

    until(all_know, f"another broker than {victim} leads", pause_s=0)
    for peer in peers:
        peer.reset()
    return told


@pytest.mark.parametrize(
    "controller",
    [
        pytest.param(False, id="leader", marks=pytest.mark.thorough),
        pytest.param(True, id="leader-and-controller"),
    ],
)
def test_nobody_is_told_of_no_leader_while_one_is_elected(
    cluster: KstoreCluster, controller: bool
) -> None:
    for number in range(KILLS):
        first = cluster.wait_for_controller()
        others = [node_id for node_id in cluster.brokers if node_id != first]
        victim, *rest = [first, *others] if controller else [*others, first]
        topic_led_by(cluster, victim, rest)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
        acknowledged: list[int] = []
        send(producer, acknowledged, 0)
        assert producer.flush(60) == 0
        told = kill(cluster, victim)
        send(producer, acknowledged, 1)
        assert producer.flush(60) == 0
        assert not any(NO_LEADER in leaders for leaders in told), (number, told)
        assert acknowledged == [0, 1]
        cluster.start(victim)
        back(cluster)


def back(cluster: KstoreCluster) -> None:
    """All brokers know all brokers."""
    until(lambda: all(cluster.broker_ids(each) == {1, 2, 3} for each in cluster.brokers), "back")


def topic_led_by(cluster: KstoreCluster, leader: int, others: list[int]) -> None:
    """Create the topic again, with that leader, known to all brokers."""
    with cluster.admin() as admin:
        if TOPIC in admin.list_topics():
            admin.delete_topics([TOPIC])
    until(lambda: TOPIC not in known(cluster), "the topic is gone")
    cluster.create_topic(TOPIC, replicas={0: [leader, *others]})
    cluster.wait_for_isr(TOPIC, {1, 2, 3})
    until(
        lambda: all(cluster.leader(TOPIC, 0, each) == leader for each in cluster.brokers),
        f"all know that broker {leader} leads",
    )


def known(cluster: KstoreCluster) -> set[str]:
    """The topics that any of the brokers knows."""
    found: set[str] = set()
    for node_id in cluster.brokers:
        with cluster.admin(node_id) as admin:
            found |= set(admin.list_topics())
    return found


def send(producer: Producer, acknowledged: list[int], number: int) -> None:
    """One record, noted when it is acknowledged."""

    def note(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(number)

    producer.produce(TOPIC, str(number), partition=0, on_delivery=note)
