"""Three brokers whose ZooKeeper ensemble has no majority for longer than a session lasts: they go
on with what they know, what needs the store is refused, and who starts meanwhile waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kstore.errors import KafkaError, TopicAuthorizationFailedError
from tests.beside.waiting import until
from tests.conformance.broker_process import free_port
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.conformance.sasl_listeners import SCRAM_PASSWORD, SCRAM_USER, client_settings
from tests.conformance.zookeeper_server import ZooKeeperEnsemble
from tests.faults.histories import Traffic, check_records

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("zookeeper_jars"),
]

SESSION_S = 6
MECHANISM = "SCRAM-SHA-256"
MORE = 200
SECURE = {
    "zookeeper.session.timeout.ms": str(SESSION_S * 1000),
    "zookeeper.connection.timeout.ms": "3000",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    "listener.name.client.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path / "zookeeper") as running:
        yield running


def secure_cluster(tmp_path: Path, ensemble: ZooKeeperEnsemble) -> tuple[KstoreCluster, list[str]]:
    """A cluster with a listener for SCRAM beside the plain one, and where that is."""
    store = {"zookeeper": f"{ensemble.connect}/k"}
    cluster = KstoreCluster(tmp_path, overrides=THREE_REPLICAS | SECURE, **store)
    addresses = []
    for node_id, broker in list(cluster.brokers.items()):
        addresses.append(f"127.0.0.1:{free_port()}")
        listeners = f"PLAINTEXT://{broker.bootstrap},CLIENT://{addresses[-1]}"
        broker.overrides = {**broker.overrides, "listeners": listeners}
        assert cluster.brokers[node_id] is broker
    return cluster, addresses


def let_bob_write(cluster: KstoreCluster) -> None:
    """A user with SCRAM who may write one topic of two."""
    from kstore.acls import Acl, AclOperation, AclResourceType
    from kstore.clients.admin import ScramUpsertion

    with cluster.admin() as admin:
        admin.alter_scram_credentials(
            [ScramUpsertion(SCRAM_USER, MECHANISM, SCRAM_PASSWORD.encode(), 4096)]
        )
        admin.create_acls(
            [Acl(AclResourceType.TOPIC, "orders", f"User:{SCRAM_USER}", AclOperation.WRITE)]
        )  # fmt: skip


def write_as_bob(address: str, topic: str) -> Any:
    """One record over a new connection with a new login."""
    from kstore.clients import Producer as KstoreProducer

    settings = client_settings(MECHANISM, address) | {"enable.idempotence": False}
    with KstoreProducer(settings) as producer:
        return producer.send(topic, b"bob", partition=0).result(60)


def refused_topic(cluster: KstoreCluster, node_id: int) -> KafkaError:
    """Why a topic cannot be created now."""
    from kstore.clients import NewTopic

    with cluster.admin(node_id, 5000) as admin, pytest.raises(KafkaError) as refused:
        admin.create_topics([NewTopic("late", 1)])
    return refused.value


@pytest.mark.thorough
def test_brokers_go_on_while_the_ensemble_has_no_majority(
    tmp_path: Path, ensemble: ZooKeeperEnsemble
) -> None:
    cluster, addresses = secure_cluster(tmp_path, ensemble)
    with cluster, ThreadPoolExecutor(1) as threads:
        cluster.create_topic("secret", 1, 3)
        let_bob_write(cluster)
        traffic = Traffic(cluster)
        producer, reader = traffic.producers[0], traffic.reader
        cluster.kill(3)
        until(lambda: cluster.isr("secret") == {1, 2}, "the killed broker is out of sync")
        until(
            lambda: all(cluster.isr("orders", p) == {1, 2} for p in range(PARTITIONS)), "the same"
        )
        epochs = {p.partition: p.leader_epoch for p in cluster.topic("orders").partitions}

        for server in ensemble.servers[:2]:
            server.kill()
        time.sleep(2 * SESSION_S)  # longer than a session: how long the fault lasts
        acknowledged, seen = len(producer.acknowledged), len(reader.seen)
        until(lambda: len(producer.acknowledged) > acknowledged + MORE, "producers go on")
        until(lambda: len(reader.seen) > seen + MORE, "consumers go on")
        for address in addresses[:2]:
            assert write_as_bob(address, "orders") is not None
            with pytest.raises(TopicAuthorizationFailedError):
                write_as_bob(address, "secret")
        for node_id in (1, 2):
            refusal = refused_topic(cluster, node_id)
            assert refusal.retriable, refusal
        waiting = threads.submit(cluster.brokers[3].start, timeout_s=300)
        until(
            lambda: "waiting for the coordination store" in cluster.brokers[3].error_output(), "it"
        )
        assert not waiting.done()
        now = {p.partition: p.leader_epoch for p in cluster.topic("orders", 1).partitions}
        assert now == epochs  # no leader was elected

        for server in ensemble.servers[:2]:
            server.start()
        ensemble.leader()
        waiting.result()
        until(lambda: cluster.all_in_sync("orders"), "all in sync with the ensemble", 120)
        cluster.kill(cluster.controller_id())
        until(lambda: len(cluster.broker_ids()) == 2, "a new controller notices", 120)
        stored = traffic.finish()
        mine, seen_of_mine = ([r for r in rs if r[2] != "bob"] for rs in (stored, reader.seen))
        assert len(stored) - len(mine) == 2
        check_records(mine, traffic.producers, seen_of_mine)
