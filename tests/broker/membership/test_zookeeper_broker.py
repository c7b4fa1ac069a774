"""Brokers with a real ZooKeeper: one survives kill -9, several are a cluster."""

from __future__ import annotations

import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kstore.broker.coordination.zookeeper_store import ZooKeeperStore
from tests.beside.waiting import until
from tests.conformance.broker_process import BrokerDiedError
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_topics_are_kept_in_zookeeper_over_a_kill(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    from kstore.clients import AdminClient, NewTopic

    settings = {
        "zookeeper.connect": f"{zookeeper_server.bootstrap}/kstore",
        "zookeeper.session.timeout.ms": "2000",
    }
    broker = KstoreBroker(tmp_path / "broker", overrides=settings)
    with broker:
        with AdminClient(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 3)])
        broker.kill()
        broker.start()  # waits until its old session is over
        with AdminClient(broker.bootstrap) as admin:
            assert "orders" in admin.list_topics()
        store = ZooKeeperStore(f"{zookeeper_server.bootstrap}/kstore")
        assert store.children("/brokers/ids") == ["1"]
        assert store.children("/brokers/topics/orders/partitions") == ["0", "1", "2"]
        store.close()
        assert not (broker.log_dir / ".coordination").exists()


def test_brokers_on_one_zookeeper_are_a_cluster(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    settings = {"zookeeper.session.timeout.ms": "2000"}
    with KstoreCluster(
        tmp_path, overrides=settings, zookeeper=f"{zookeeper_server.bootstrap}/c"
    ) as cluster:
        first = cluster.wait_for_controller()
        until(lambda: cluster.broker_ids() == {1, 2, 3}, "all three are known")
        cluster.kill(first)
        second = cluster.wait_for_controller(not_=first)
        cluster.start(first)  # waits until its old session is over
        until(lambda: cluster.broker_ids(second) == {1, 2, 3}, "it is back")
        cluster.pause(second)
        third = cluster.wait_for_controller(not_=second)
        cluster.resume(second)
        until(lambda: cluster.broker_ids(third) == {1, 2, 3}, "it has a new session")
        assert cluster.wait_for_controller() == third


def test_a_start_without_a_server_says_so_and_waits(tmp_path: Path) -> None:
    from tests.conformance.broker_process import free_port

    settings = {
        "zookeeper.connect": f"127.0.0.1:{free_port()}",
        "zookeeper.connection.timeout.ms": "300",
    }
    broker = KstoreBroker(tmp_path, overrides=settings)
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(broker.start, timeout_s=120)
        words = "waiting for the coordination store: no ZooKeeper server of 127"
        until(lambda: broker.error_output().count(words) > 2, "it waits and says for what")
        assert not starting.done()
        with socket.socket() as client:  # clients try another broker
            assert client.connect_ex((broker.host, broker.port)) == errno.ECONNREFUSED
        assert broker.process is not None
        broker.process.terminate()
        with pytest.raises(BrokerDiedError, match="exited 0"):
            starting.result()
