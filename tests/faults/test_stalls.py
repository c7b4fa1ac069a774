"""A signal stops a leader, on a machine where sessions last for minutes and a stopped process is
noticed earlier: another broker soon leads, no acknowledged record is lost, and the leader comes
back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.beside.waiting import until
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.faults.histories import Producer, Traffic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BROKERS = THREE_REPLICAS | {
    "kstore.coordination.session.timeout.ms": "1800000",
    "kstore.coordination.stall.timeout.ms": "500",
}
ROUNDS = 3


@pytest.mark.thorough
def test_a_stopped_leader_is_replaced_long_before_its_session_would_end(tmp_path: Path) -> None:
    with KstoreCluster(tmp_path, overrides=BROKERS) as cluster:
        traffic = Traffic(cluster)
        producer = traffic.producers[0]
        for _ in range(ROUNDS):
            stopped = cluster.leader("orders", 0)
            cluster.pause(stopped)
            cluster.wait_for_leader("orders", 0, not_=stopped)
            before = {p: count(producer, p) for p in range(PARTITIONS)}
            until(
                lambda before=before: all(count(producer, p) > n for p, n in before.items()),
                "records of all partitions are acknowledged",
            )
            cluster.resume(stopped)
            if cluster.was_killed(stopped):  # it was stopped with the store locked
                cluster.kill(stopped)  # the cluster's record of its end
                cluster.start(stopped)
            until(lambda: cluster.all_in_sync("orders"), "it is back in sync", 120)
        traffic.check()


def count(producer: Producer, partition: int) -> int:
    """How many records of a partition are acknowledged."""
    return sum(place[0] == partition for place in list(producer.acknowledged))
