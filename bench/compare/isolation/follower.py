"""Small records on a leader while a follower catches up: three brokers, one of which was down while
much data was written. The two sides run one after the other, because six brokers are too many for
few cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.compare.cluster import Cluster
from bench.compare.isolation.neighbours import Sizes, Work, fill
from tests.conformance.broker_process import BrokerProcess

__all__ = ["LEADER", "SMALL", "catching_up"]

LEADER, FOLLOWER = 1, 2
SMALL, BULK = "small", "followed"
DEADLINE_S = 300.0
PAUSE_S = 0.02


def _admin(broker: BrokerProcess) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def _create(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    from confluent_kafka.admin import NewTopic

    admin = _admin(cluster.brokers[LEADER])
    made = NewTopic(topic, 1, replica_assignment=[replicas])
    admin.create_topics([made])[topic].result(60)
    _wait_for_isr(cluster, topic, replicas)


def _wait_for_isr(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    admin = _admin(cluster.brokers[LEADER])
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if found and found[0].leader == LEADER and set(found[0].isrs) == set(replicas):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ISR of {topic} is not {replicas} within {DEADLINE_S:g} s")
        time.sleep(PAUSE_S)


@contextmanager
def catching_up(cluster: Cluster, sizes: Sizes) -> Iterator[tuple[BrokerProcess, Work]]:
    """Start the cluster. Yields the leader, which has the topic `SMALL`, and a function that makes
    the follower catch up. Its rate counts from the follower's start until the follower is in sync.
    """
    try:
        cluster.start()
        leader = cluster.brokers[LEADER]
        _create(cluster, SMALL, [LEADER])
        _create(cluster, BULK, [LEADER, FOLLOWER])
        cluster.brokers[FOLLOWER].stop()
        _wait_for_isr(cluster, BULK, [LEADER])
        fill(leader, BULK, sizes.followed_bytes)

        def work() -> float:
            begin = time.monotonic()
            cluster.start(FOLLOWER)
            _wait_for_isr(cluster, BULK, [LEADER, FOLLOWER])
            return sizes.followed_bytes / (time.monotonic() - begin) / 1e6

        yield leader, work
    finally:
        cluster.stop()
