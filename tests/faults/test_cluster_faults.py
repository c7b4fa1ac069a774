"""Three real brokers under a seeded schedule of kill -9, SIGSTOP and restarts, with unmodified
clients on them; the histories that the clients noted are checked at the end.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.beside.waiting import until
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.faults.histories import (
    CommitClient,
    Copier,
    LeaderWatcher,
    Producer,
    Traffic,
    all_records,
)
from tests.reference.linearizability import is_linearizable

pytestmark = [pytest.mark.slow, pytest.mark.own_python, pytest.mark.timeout(600)]

FAULTS = 6


def leaders(cluster: KstoreCluster, node_id: int) -> list[tuple[int, int, int]]:
    """Partition, leader epoch and leader as one broker knows them."""
    with cluster.admin(node_id, timeout_ms=1000) as admin:
        (found,) = admin.describe_topics(["orders"])
    return [(row.partition, row.leader_epoch, row.leader) for row in found.partitions]


def disturb(cluster: KstoreCluster, topic: str, rng: random.Random) -> list[str]:
    """One fault after the other, each healed before the next; what was done, in words."""
    done = []
    for _ in range(FAULTS):
        node = rng.choice(list(cluster.brokers))
        if rng.random() < 0.5:  # more often the one that it hurts
            node = cluster.leader(topic, rng.randrange(PARTITIONS))
        kind = rng.choice(["kill", "kill", "pause", "stop"])
        pause_s = rng.uniform(0.3, 2.0)
        done.append(f"{kind} {node} for {pause_s:.1f} s")
        cluster.fault(node, kind, pause_s)
        until(lambda: cluster.all_in_sync(topic), f"all in sync after {done}", 90)
    return done


@pytest.fixture
def seed() -> int:
    """KSTORE_FAULT_SEED, or a fixed one: the schedule is repeated, the processes' timing is not."""
    return int(os.environ.get("KSTORE_FAULT_SEED", "1"))


def test_nothing_acknowledged_is_lost_doubled_or_reordered(tmp_path: Path, seed: int):
    with KstoreCluster(tmp_path, overrides=THREE_REPLICAS) as cluster:
        traffic = Traffic(cluster)
        watcher = LeaderWatcher(lambda node: leaders(cluster, node), list(cluster.brokers))
        watcher.start()
        done = disturb(cluster, "orders", random.Random(seed))
        watcher.finish()
        traffic.check()
        assert not watcher.went_back, done
        assert all(len(each) == 1 for each in watcher.leaders.values()), watcher.leaders
        assert len(watcher.leaders) > PARTITIONS, done
        assert len(traffic.producers[0].acknowledged) > 100, done
        assert len(traffic.reader.seen) > 100, done


@pytest.mark.thorough
def test_a_transactional_copy_has_each_record_once(tmp_path: Path, seed: int):
    with KstoreCluster(tmp_path, overrides=THREE_REPLICAS) as cluster:
        cluster.create_topic("source", PARTITIONS, 3)
        cluster.create_topic("target", PARTITIONS, 3)
        producer = Producer("p", cluster.bootstrap, "source", PARTITIONS)
        copier = Copier(cluster.bootstrap, "source", "target")
        producer.start()
        copier.start()
        until(lambda: copier.transactions > 0, "the first transaction is committed", 120)
        done = disturb(cluster, "target", random.Random(seed + 1))
        producer.finish()
        copier.finish(240)
        source = all_records(cluster.bootstrap, "source", PARTITIONS, "read_committed")
        target = all_records(cluster.bootstrap, "target", PARTITIONS, "read_committed")
        assert Counter(v for _, _, v in target) == Counter(v for _, _, v in source), done


def test_offset_commits_are_linearizable(tmp_path: Path, seed: int):
    with KstoreCluster(tmp_path, overrides=THREE_REPLICAS) as cluster:
        cluster.create_topic("orders", PARTITIONS, 3)
        clients = [CommitClient(n, cluster.bootstrap, "orders", time.monotonic) for n in range(3)]
        for client in clients:
            client.start()
        until(lambda: all(client.history for client in clients), "all have begun", 120)
        done = disturb(cluster, "orders", random.Random(seed + 2))
        for client in clients:
            client.finish()
        history = [operation for client in clients for operation in client.history]
        assert sum(operation.kind == "read" for operation in history) > 20, done
        assert is_linearizable(history, 0), (done, sorted(history, key=lambda op: op.called))
