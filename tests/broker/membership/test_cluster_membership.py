"""Real brokers stop and start: who is a member, who is the controller, and who was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.broker.coordination.lmdb_store import LmdbStore
from tests.beside.waiting import until
from tests.conformance.broker_process import BrokerDiedError
from tests.conformance.kstore_cluster import KstoreCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KstoreCluster]:
    with KstoreCluster(tmp_path) as running:
        yield running


def coordination(cluster: KstoreCluster) -> LmdbStore:
    """A session of the test's own on the store that the brokers share."""
    return LmdbStore(cluster.folder / "coordination", shared=True)


def wait_for_brokers(cluster: KstoreCluster, ids: set[int], asked: int | None = None) -> None:
    until(lambda: cluster.broker_ids(asked) == ids, f"the brokers are {ids}")


def test_brokers_find_each_other_and_one_controller(cluster: KstoreCluster) -> None:
    controller = cluster.wait_for_controller()
    for node_id in cluster.brokers:
        wait_for_brokers(cluster, {1, 2, 3}, node_id)
    store = coordination(cluster)
    assert store.children("/brokers/ids") == ["1", "2", "3"]
    assert f'"brokerid":{controller}' in store.get("/controller")[0].decode()
    assert int(store.get("/controller_epoch")[0]) >= 1
    store.close()
    assert not (cluster.brokers[1].log_dir / ".coordination").exists()


def test_a_killed_controller_is_replaced_and_comes_back_as_a_broker(cluster: KstoreCluster) -> None:
    first = cluster.wait_for_controller()
    store = coordination(cluster)
    epoch = int(store.get("/controller_epoch")[0])
    broker_epoch = store.stat(f"/brokers/ids/{first}")
    cluster.kill(first)
    second = cluster.wait_for_controller(not_=first)
    assert int(store.get("/controller_epoch")[0]) > epoch
    wait_for_brokers(cluster, {1, 2, 3} - {first})
    cluster.start(first)
    wait_for_brokers(cluster, {1, 2, 3}, first)
    assert cluster.wait_for_controller() == second
    again = store.stat(f"/brokers/ids/{first}")
    assert broker_epoch is not None
    assert again is not None
    assert again.czxid > broker_epoch.czxid
    store.close()


def test_every_broker_can_be_stopped_and_started_in_turn(cluster: KstoreCluster) -> None:
    for node_id in cluster.brokers:
        assert cluster.stop(node_id) == [0]
        rest = {1, 2, 3} - {node_id}
        wait_for_brokers(cluster, rest)
        assert cluster.wait_for_controller() in rest
        cluster.start(node_id)
        wait_for_brokers(cluster, {1, 2, 3})


def test_a_second_broker_of_one_id_is_refused(tmp_path: Path) -> None:
    # It waits this long for the end of the first one, and must not lose its own session on a busy
    # machine.
    settings = {"kstore.coordination.session.timeout.ms": "2000"}
    with KstoreCluster(tmp_path, 1, overrides=settings) as cluster:
        twin = cluster.add(2, {"node.id": "1"})
        with pytest.raises(
            BrokerDiedError,
            match=r"broker 1 is already registered by a running "
            "process",
        ):
            twin.start()
        assert cluster.broker_ids(1) == {1}


def test_a_broker_that_stood_still_is_replaced_and_starts_over(tmp_path: Path) -> None:
    settings = {"kstore.coordination.session.timeout.ms": "1500"}
    with KstoreCluster(tmp_path, overrides=settings) as cluster:
        first = cluster.wait_for_controller()
        store = coordination(cluster)
        before = store.stat(f"/brokers/ids/{first}")
        assert before is not None
        cluster.pause(first)
        second = cluster.wait_for_controller(not_=first)
        wait_for_brokers(cluster, {1, 2, 3} - {first}, second)
        cluster.resume(first)
        wait_for_brokers(cluster, {1, 2, 3}, second)
        after = store.stat(f"/brokers/ids/{first}")
        assert after is not None
        assert after.czxid > before.czxid
        assert cluster.wait_for_controller() == second
        assert "has ended this broker's session" in cluster.brokers[first].error_output()
        store.close()
