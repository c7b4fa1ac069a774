"""The share coordinator in a cluster: brokers that lead nothing, and one that is killed."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.broker.state.shares.persisted import SharePartitionKey, StateBatch
from kstore.errors import ErrorCode
from tests.beside.waiting import answer_of
from tests.broker.harness.share_state_client import MOVING, ShareStateClient
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster

SETTINGS = THREE_REPLICAS | {"share.coordinator.state.topic.num.partitions": "3"}


class Clients:
    """A connection to each broker, and the one that coordinates."""

    def __init__(self, cluster: KstoreCluster) -> None:
        self._cluster = cluster
        self._clients: dict[int, ShareStateClient] = {}

    def __getitem__(self, node_id: int) -> ShareStateClient:
        if node_id not in self._clients:
            broker = self._cluster.brokers[node_id]
            self._clients[node_id] = ShareStateClient(broker)
        return self._clients[node_id]

    def any(self) -> ShareStateClient:
        """To a broker that runs."""
        return self[next(i for i in self._cluster.brokers if self._cluster.runs(i))]

    def call(self, name: str, key: SharePartitionKey, *arguments: Any) -> Any:
        """Ask the current coordinator."""

        def ask() -> Any:
            try:
                return getattr(self[self.any().coordinator(key)], name)(key, *arguments)
            except OSError:
                self.close()  # one of them is to a broker that was killed
                raise

        return answer_of(ask, lambda row: row.error_code not in MOVING, f"{name} {key}")

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()


@pytest.mark.slow
def test_what_was_answered_survives_the_kill_of_its_coordinator(cluster: KstoreCluster) -> None:
    clients = Clients(cluster)
    topic_id = clients.any().make_topic("t", 6, replicas=3)
    keys = [SharePartitionKey("g", topic_id, index) for index in range(6)]
    for key in keys:
        assert clients.call("initialize", key, 1, 0).error_code == ErrorCode.NONE
    # One that does not coordinate says so.
    coordinator = clients.any().coordinator(keys[0])
    other = next(i for i in cluster.brokers if i != coordinator)
    assert clients[other].read_summary(keys[0], 0).error_code == ErrorCode.NOT_COORDINATOR
    for step in range(30):
        if step == 10:
            cluster.kill(coordinator)
        if step == 20:
            cluster.start(coordinator)
        for key in keys:
            batch = StateBatch(step, step, 2, 1)
            told = clients.call("write", key, 1, 0, -1, step, (batch,))
            assert told.error_code == ErrorCode.NONE
    for key in keys:
        told = clients.call("read", key, 0)
        rows = [
            (row.first_offset, row.last_offset, row.delivery_state, row.delivery_count)
            for row in told.state_batches
        ]
        assert rows == [(0, 29, 2, 1)]
        assert clients.call("read_summary", key, 0).delivery_complete_count == 29
    assert clients.any().coordinator(keys[0]) != -1
    clients.close()
