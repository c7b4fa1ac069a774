"""Three real brokers on a separate network, whose cables are cut between brokers while unmodified
clients produce and read: no acknowledged record is lost, and everything continues when it is
healed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.beside.waiting import until
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.faults.histories import Traffic
from tests.faults.networks import Network, why_not

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class HostedBroker(KstoreBroker):
    """A broker on a host of the network."""

    def __init__(self, folder: Path, overrides: Mapping[str, str], network: Network) -> None:
        super().__init__(folder, overrides=overrides)
        number = int(overrides["node.id"])
        self.host = network.address(number)
        self._prefix = network.command(number)

    def command(self) -> list[str]:
        return [*self._prefix, *super().command()]


class HostedCluster(KstoreCluster):
    """A cluster whose brokers have separate hosts; they share the folder."""

    def __init__(self, folder: Path, network: Network, overrides: Mapping[str, str]) -> None:
        self._network = network
        super().__init__(folder, 3, overrides=overrides)

    def add(self, node_id: int, overrides: Mapping[str, str] | None = None) -> KstoreBroker:
        given = self._overrides | {"node.id": str(node_id)} | dict(overrides or {})
        broker = HostedBroker(self.folder / f"broker{node_id}", given, self._network)
        self.brokers[node_id] = broker
        return broker


@pytest.fixture
def network() -> Iterator[Network]:
    """Skips where none can be made (SKIPPED.md)."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Network(3) as made:
        yield made


LISTEN = """
import socket, sys
listening = socket.create_server((sys.argv[1], 0))
print(listening.getsockname()[1], flush=True)
while True:
    listening.accept()[0].close()
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"


def test_what_is_cut_is_cut_and_what_is_healed_is_whole(network: Network):
    listening = subprocess.Popen(
        [*network.command(2), sys.executable, "-c", LISTEN, network.address(2)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert listening.stdout is not None
        port = listening.stdout.readline().strip()

        def reaches(host: int) -> bool:
            command = [sys.executable, "-c", CONNECT, network.address(2), port]
            run = [*network.command(host), *command]
            return subprocess.run(run, capture_output=True, check=False).returncode == 0

        assert reaches(1)
        for source, target in ((1, 2), (2, 1)):
            network.cut(source, target)
            assert not reaches(1)
            assert reaches(3)
            network.heal(source, target)
            assert reaches(1)
        network.isolate(1)
        assert not reaches(1)
        network.rejoin(1)
        until(lambda: reaches(1), "the cable is in again")
    finally:
        listening.kill()
        listening.communicate()


@pytest.mark.thorough
def test_cables_between_brokers_are_cut_and_nothing_is_lost(tmp_path: Path, network: Network):
    rng = random.Random(int(os.environ.get("KSTORE_FAULT_SEED", "1")))
    with HostedCluster(tmp_path, network, THREE_REPLICAS) as cluster:
        traffic = Traffic(cluster)
        done = []
        for way in ("both", "out", "in", "alone"):
            victim = cluster.leader("orders", rng.randrange(PARTITIONS))
            others = [i for i in cluster.brokers if i != victim]
            done.append(f"{way} {victim}")
            cables = [(victim, other) for other in others if way in {"both", "out"}]
            cables += [(other, victim) for other in others if way in {"both", "in"}]
            for source, target in cables:
                network.cut(source, target)
            if way == "alone":
                network.isolate(victim)
            time.sleep(rng.uniform(2, 5))  # how long the fault lasts; nothing is awaited
            for source, target in cables:
                network.heal(source, target)
            if way == "alone":
                network.rejoin(victim)
            until(lambda: cluster.all_in_sync("orders"), f"all in sync after {done}", 120)
        traffic.check()
        assert len(traffic.producers[0].acknowledged) > 100, done
