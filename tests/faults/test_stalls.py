"""A leader that a signal has stopped, on a machine where sessions last for minutes and a stopped
process is seen sooner: another leads soon, nothing acknowledged is lost, and it comes back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.kstore_cluster import KstoreCluster, until
from tests.faults.histories import Producer, Reader, all_records, check_records
from tests.faults.test_cluster_faults import PARTITIONS, SETTINGS, in_sync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BROKERS = SETTINGS | {
    "kstore.coordination.session.timeout.ms": "1800000",
    "kstore.coordination.stall.timeout.ms": "500",
}
ROUNDS = 3


def test_a_stopped_leader_is_replaced_long_before_its_session_would_end(tmp_path: Path) -> None:
    with KstoreCluster(tmp_path, overrides=BROKERS) as cluster:
        cluster.create_topic("orders", PARTITIONS, 3)
        producers = [Producer(f"p{n}", cluster.bootstrap, "orders", PARTITIONS) for n in range(2)]
        reader = Reader(cluster.bootstrap, "orders", PARTITIONS, "read_uncommitted")
        for worker in (*producers, reader):
            worker.start()
        until(lambda: producers[0].acknowledged, "the first record is acknowledged")
        for _ in range(ROUNDS):
            stopped = cluster.leader("orders", 0)
            cluster.pause(stopped)
            cluster.wait_for_leader("orders", 0, not_=stopped)
            before = {p: count(producers[0], p) for p in range(PARTITIONS)}
            until(
                lambda before=before: all(count(producers[0], p) > n for p, n in before.items()),
                "records of all partitions are acknowledged",
            )
            cluster.resume(stopped)
            until(lambda: in_sync(cluster, "orders"), "it is back in sync", 120)
        for worker in (*producers, reader):
            worker.finish()
        stored = all_records(cluster.bootstrap, "orders", PARTITIONS, "read_uncommitted")
        check_records(stored, producers, reader.seen)


def count(producer: Producer, partition: int) -> int:
    """How many records of a partition are acknowledged."""
    return sum(place[0] == partition for place in list(producer.acknowledged))
