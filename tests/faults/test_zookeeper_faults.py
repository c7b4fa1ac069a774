"""Three real brokers on a real ZooKeeper ensemble that loses its leader, and then all its servers
for longer than a session lasts: what clients were told holds.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conformance.kafka_jars import KafkaUnavailableError
from tests.conformance.kstore_cluster import KstoreCluster, until
from tests.conformance.zookeeper_server import ZooKeeperEnsemble, zookeeper_classpath
from tests.faults.histories import Producer, Reader, all_records, check_records
from tests.faults.test_cluster_faults import PARTITIONS, SETTINGS, in_sync

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

SESSION_S = 6
BROKERS = SETTINGS | {"zookeeper.session.timeout.ms": str(SESSION_S * 1000)}


@pytest.fixture(autouse=True)
def _zookeeper() -> None:
    try:
        zookeeper_classpath()
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


def test_an_ensemble_loses_its_leader_and_then_everybody(tmp_path: Path):
    with (
        ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble,
        KstoreCluster(tmp_path, overrides=BROKERS, zookeeper=f"{ensemble.connect}/k") as cluster,
    ):
        cluster.create_topic("orders", PARTITIONS, 3)
        producers = [Producer(f"p{n}", cluster.bootstrap, "orders", PARTITIONS) for n in range(2)]
        reader = Reader(cluster.bootstrap, "orders", PARTITIONS, "read_uncommitted")
        for worker in (*producers, reader):
            worker.start()
        until(lambda: producers[0].acknowledged, "the first record is acknowledged")

        lost = ensemble.leader()
        lost.kill()
        ensemble.leader()
        cluster.kill(3)  # noticed by the end of its session, on what is left of the ensemble
        until(lambda: cluster.broker_ids(1) == {1, 2}, "the end of a killed broker is noticed")
        cluster.start(3)
        until(lambda: in_sync(cluster, "orders"), "all in sync without one ZooKeeper server", 120)
        lost.start()

        for server in ensemble.servers:
            server.kill()
        time.sleep(SESSION_S + 2)  # longer than a session: how long the fault lasts
        for server in ensemble.servers:
            server.start()
        ensemble.leader()
        before = len(producers[0].acknowledged)
        until(lambda: in_sync(cluster, "orders"), "all in sync with a new ensemble", 120)
        until(
            lambda: len(producers[0].acknowledged) > before, "records are acknowledged again", 120
        )
        cluster.kill(cluster.controller_id())
        until(lambda: len(cluster.broker_ids()) == 2, "a new controller notices", 120)

        for worker in (*producers, reader):
            worker.finish()
        stored = all_records(cluster.bootstrap, "orders", PARTITIONS, "read_uncommitted")
        check_records(stored, producers, reader.seen)
