"""Three real brokers on a real ZooKeeper ensemble that loses its leader, and then all its servers
for longer than a session: acknowledged operations stay done.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.beside.waiting import until
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster
from tests.conformance.zookeeper_server import ZooKeeperEnsemble
from tests.faults.histories import Traffic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("zookeeper_jars"),
]

SESSION_S = 6
BROKERS = THREE_REPLICAS | {"zookeeper.session.timeout.ms": str(SESSION_S * 1000)}


@pytest.mark.thorough
def test_an_ensemble_loses_its_leader_and_then_everybody(tmp_path: Path):
    with (
        ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble,
        KstoreCluster(tmp_path, overrides=BROKERS, zookeeper=f"{ensemble.connect}/k") as cluster,
    ):
        traffic = Traffic(cluster)
        producer = traffic.producers[0]

        lost = ensemble.leader()
        lost.kill()
        ensemble.leader()
        cluster.kill(3)  # noticed at the end of its session, by the rest of the ensemble
        until(lambda: cluster.broker_ids(1) == {1, 2}, "the end of a killed broker is noticed")
        cluster.start(3)
        until(
            lambda: cluster.all_in_sync("orders"), "all in sync without one ZooKeeper server", 120
        )
        lost.start()

        for server in ensemble.servers:
            server.kill()
        time.sleep(SESSION_S + 2)  # longer than a session: how long the fault lasts
        for server in ensemble.servers:
            server.start()
        ensemble.leader()
        before = len(producer.acknowledged)
        until(lambda: cluster.all_in_sync("orders"), "all in sync with a new ensemble", 120)
        until(lambda: len(producer.acknowledged) > before, "records are acknowledged again", 120)
        cluster.kill(cluster.controller_id())
        until(lambda: len(cluster.broker_ids()) == 2, "a new controller notices", 120)
        traffic.check()
