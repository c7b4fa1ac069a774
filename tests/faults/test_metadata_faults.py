"""Topics are created, grown and deleted while brokers, above all the controller, are killed,
stopped and suspended. Acknowledged changes are kept, and at the end all brokers agree.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, NewTopic
from kstore.errors import KafkaError
from tests.beside.waiting import until
from tests.conformance.kstore_cluster import KstoreCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FAULTS = 6
BROKERS = {"kstore.coordination.session.timeout.ms": "1500"}
REPLICAS = 2


class Administrator(threading.Thread):
    """Creates, grows and deletes its own topics; it knows which changes were acknowledged."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.there: set[str] = set()
        self.gone: set[str] = set()
        self.over = False
        self._prefix = name
        self._servers = bootstrap
        self._random = random.Random(seed)

    def run(self) -> None:
        number = 0
        while not self.over:
            number += 1
            try:
                with AdminClient(self._servers, default_api_timeout_ms=8000) as admin:
                    self._step(admin, f"{self._prefix}-{number}")
            except (KafkaError, OSError):
                continue  # whatever it was about may have been done or not

    def _step(self, admin: AdminClient, name: str) -> None:
        admin.create_topics([NewTopic(name, self._random.choice([1, 3]), REPLICAS)])
        self.there.add(name)
        if self._random.random() < 0.5:
            victim = self._random.choice(sorted(self.there))
            self.there.discard(victim)
            if self._random.random() < 0.5:
                admin.delete_topics([victim])
                self.gone.add(victim)
            else:
                admin.create_partitions(victim, 5)
                self.there.add(victim)


def hit(cluster: KstoreCluster, chance: random.Random) -> None:
    """One fault, and its end."""
    with cluster.admin() as admin:
        controller = admin.describe_cluster().controller_id
    node_id = chance.choice([*cluster.brokers, max(1, controller), max(1, controller)])
    kind = chance.choice(["kill", "stop", "pause"])
    if kind == "pause":
        cluster.pause(node_id)
        time.sleep(chance.choice([0.3, 2.5]))  # how long the fault lasts
        cluster.resume(node_id)
        return
    (cluster.kill if kind == "kill" else cluster.stop)(node_id)
    cluster.start(node_id)


def views(cluster: KstoreCluster) -> list[dict[str, Any]]:
    """What each broker says of every partition."""
    found = []
    for node_id in cluster.brokers:
        with cluster.admin(node_id) as admin:
            found.append(
                {
                    topic.name: [(p.leader, p.leader_epoch, set(p.isr)) for p in topic.partitions]
                    for topic in admin.describe_topics()
                }
            )
    return found


def test_what_was_answered_about_topics_holds(tmp_path: Path) -> None:
    seed = int(os.environ.get("KSTORE_FAULT_SEED", "1"))
    chance = random.Random(seed)
    with KstoreCluster(tmp_path, overrides=BROKERS) as cluster:
        workers = [Administrator(f"t{n}", cluster.bootstrap, seed + n) for n in range(2)]
        for worker in workers:
            worker.start()
        for _ in range(FAULTS):
            hit(cluster, chance)
        for worker in workers:
            worker.over = True
            worker.join(60)
            assert not worker.is_alive()

        def settled() -> bool:
            first, *others = views(cluster)
            in_sync = all(len(isr) == REPLICAS for rows in first.values() for _, _, isr in rows)
            return in_sync and all(other == first for other in others)

        until(settled, "all brokers say the same, with everybody in sync", 120)
        names = set(views(cluster)[0])
        for worker in workers:
            assert worker.there
            assert worker.there <= names
            assert not worker.gone & names
