"""Replication between real brokers: moves between log dirs, throttles, and late brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.clients import Producer
from tests.beside.waiting import until
from tests.beside.worker import Worker
from tests.broker.harness.wire import Wire, ask
from tests.conformance.kstore_cluster import KstoreCluster
from tests.plain_messages import Ask

pytestmark = pytest.mark.slow
TIMEOUT_S = 60
TOPIC, BROKER = 2, 4
LONG_SESSION = {"kstore.coordination.session.timeout.ms": "60000"}


def known(cluster: KstoreCluster, node_id: int, kind: int, name: str, key: str) -> str | None:
    """A config as one broker knows it."""
    with Wire(cluster.brokers[node_id]) as line:
        values: list[str | None] = [row.value for row in line.configs(kind, name, key)]
    return values[0] if values else None


class Writer(Worker):
    """Writes with acks=all until the end of its `with`."""

    def __init__(self, cluster: KstoreCluster) -> None:
        super().__init__("writer")
        self.acknowledged = 0
        self._cluster = cluster

    def work(self) -> None:
        with Producer(self._cluster.bootstrap, acks="all") as producer:
            while not self.stopping.is_set():
                for number in range(20):
                    producer.send("t", value=b"%d" % number * 20, partition=0)
                producer.flush()
                self.acknowledged += 20


def segments(folders: Callable[[int], Path], node_id: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folders(node_id).rglob("t-0/*.log")))


def test_a_leader_and_a_follower_move_between_log_dirs_while_they_are_written_to(
    tmp_path: Path,
) -> None:
    def folder(node_id: int) -> Path:
        return tmp_path / f"disks{node_id}"

    cluster = KstoreCluster(tmp_path / "cluster", 0, overrides=LONG_SESSION)
    for node_id in (1, 2):
        cluster.add(node_id, {"log.dirs": f"{folder(node_id)}/one,{folder(node_id)}/two"})
    with cluster:
        cluster.create_topic("t", 1, 2)
        with Writer(cluster) as writer:
            for node_id in (1, 2):
                here, there = sorted(
                    (folder(node_id) / "one", folder(node_id) / "two"),
                    key=lambda path: not (path / "t-0").exists(),
                )
                topic = {"name": "t", "partitions": [0]}
                move = {"path": str(there), "topics": [topic]}
                answer = ask(cluster.brokers[node_id], Ask.AlterReplicaLogDirs(dirs=[move]))
                assert answer.results[0].partitions[0].error_code == 0
                moved = f"{node_id}'s replica is in {there}"
                until(lambda h=here: not (h / "t-0").exists(), moved)  # type: ignore[misc]
                assert (there / "t-0").exists()
                so_far = writer.acknowledged
                until(lambda n=so_far: writer.acknowledged > n, "writes go on")  # type: ignore[misc]
        assert writer.problem is None
        cluster.wait_for_isr("t", {1, 2})
    assert segments(folder, 1) == segments(folder, 2) != b""


def test_a_replica_that_a_reassignment_brings_is_copied_within_the_rate(tmp_path: Path) -> None:
    overrides = LONG_SESSION | {"replica.fetch.response.max.bytes": "100000"}
    rate, replicas = (f"follower.replication.throttled.{what}" for what in ("rate", "replicas"))
    with KstoreCluster(tmp_path, 2, overrides=overrides) as cluster:
        cluster.create_topic("t", replicas={0: [1]})
        with Producer(cluster.bootstrap, acks="all") as producer:
            for _ in range(2000):
                producer.send("t", value=bytes(1000), partition=0)
            producer.flush()
        with cluster.admin() as admin:
            admin.alter_configs("t", {replicas: "0:2"})
            admin.alter_configs("", {rate: "5000"}, resource="broker")
        until(lambda: known(cluster, 2, TOPIC, "t", replicas) == "0:2", "2 knows the replicas")
        until(lambda: known(cluster, 2, BROKER, "2", rate) == "5000", "2 knows the rate")
        row = {"partition_index": 0, "replicas": [2]}
        topic = {"name": "t", "partitions": [row]}
        request = Ask.AlterPartitionReassignments(topics=[topic], timeout_ms=TIMEOUT_S * 1000)
        answer = ask(cluster.brokers[cluster.controller_id()], request)
        assert answer.responses[0].partitions[0].error_code == 0
        folder = cluster.brokers[2].log_dir
        until(lambda: sum(p.stat().st_blocks for p in folder.glob("t-0/*.log")) > 0, "some came")
        threading.Event().wait(1)  # 2 MB would take a tenth of it; at the rate, six minutes
        assert set(cluster.topic("t").partitions[0].replicas) == {1, 2}
        with cluster.admin() as admin:
            admin.alter_configs("", {rate: None}, resource="broker")
        until(lambda: cluster.topic("t").partitions[0].replicas == (2,), "it has moved")


def test_a_topic_is_created_while_one_of_its_brokers_is_down(tmp_path: Path) -> None:
    with KstoreCluster(tmp_path, 3) as cluster:
        cluster.create_topic("before", 1, 3)
        cluster.kill(3)
        until(lambda: 3 not in cluster.broker_ids(1), "3 is gone")
        cluster.create_topic("t", 3, 3)
        assert all(set(row.isr) == {1, 2} for row in cluster.topic("t", 1).partitions)
        with Producer(cluster.bootstrap, acks="all") as producer:
            producer.send("t", value=b"x", partition=0)
            producer.flush()
        cluster.start(3)
        until(lambda: cluster.all_in_sync("t"), "3 has its replicas")
        assert any((cluster.brokers[3].log_dir / "t-0").glob("*.log"))
