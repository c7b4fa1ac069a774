"""An exact copy while the replicator and brokers are killed: replicas have the same bytes."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.record import batches
from tests.beside.topic_records import transaction
from tests.beside.waiting import until
from tests.beside.worker import Worker
from tests.clients.replicator.sides import log_bytes
from tests.conformance.kstore_broker import ROOT, KstoreBroker
from tests.conformance.kstore_cluster import KstoreCluster

TOPIC = "orders"
PARTITIONS = 2


class Copying:
    """`kstore replicate --exact` as a process, of which a new one follows each that is killed."""

    def __init__(self, source: str, target: str, *more: str) -> None:
        words = ["replicate", TOPIC, "--exact", "--from", source, "--to", target, *more]
        self._command = [sys.executable, "-m", "kstore", *words]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)

    def to_the_end(self) -> None:
        subprocess.run(
            [*self._command, "--until-caught-up"], cwd=ROOT, check=True, timeout=180,
            capture_output=True,
        )  # fmt: skip


class Writing(Worker):
    """Transactions, of which every third is aborted, and records between them."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("writing")
        self.servers = bootstrap
        self.transactions = 0

    def has(self, transactions: int) -> bool:
        return self.transactions >= transactions

    def work(self) -> None:
        with (
            Producer(self.servers, transactional_id="t") as ending,
            Producer(self.servers, enable_idempotence=True) as plain,
        ):
            ending.init_transactions()
            while not self.stopping.is_set():
                with transaction(ending, commits=self.transactions % 3 > 0):
                    for number in range(10):
                        ending.send(TOPIC, b"%d" % number * 500, partition=number % PARTITIONS)
                        plain.send(TOPIC, b"plain", partition=number % PARTITIONS)
                self.transactions += 1
                self.stopping.wait(0.02)


def copied_under_kills(
    source: KstoreBroker,
    target: Callable[[], str],
    kill_broker: Callable[[random.Random], None],
    rounds: int,
    seed: int,
) -> None:
    """Write to the source while it is copied, and kill something in every round."""
    draws = random.Random(seed)
    with AdminClient(source.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, configs={"segment.bytes": "1048576"})])
    copying = Copying(source.bootstrap, target())
    with Writing(source.bootstrap) as writing:
        until(partial(writing.has, 4), "the source is written to")
        copying.start()
        for number in range(rounds):
            until(partial(writing.has, writing.transactions + 6), "the source is written to")
            time.sleep(draws.uniform(0, 1))
            if number % 2:
                kill_broker(draws)
            else:
                copying.kill()
                copying.start()
    copying.kill()
    Copying(source.bootstrap, target()).to_the_end()


@pytest.mark.slow
def test_kills_of_the_replicator_and_the_target_leave_the_same_bytes(tmp_path: Path) -> None:
    with KstoreBroker(tmp_path / "source") as source, KstoreBroker(tmp_path / "target") as target:

        def kill_broker(_: random.Random) -> None:
            target.kill()
            target.start()

        copied_under_kills(source, lambda: target.bootstrap, kill_broker, rounds=4, seed=1)
        for index in range(PARTITIONS):
            wanted = log_bytes(source.log_dir, TOPIC, index)
            assert any(batch.is_control for batch in batches(wanted))
            assert log_bytes(target.log_dir, TOPIC, index) == wanted


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [11, 12])
def test_kills_in_a_cluster_leave_the_same_bytes_on_every_replica(
    tmp_path: Path, seed: int
) -> None:
    overrides = {"min.insync.replicas": "2", "default.replication.factor": "3"}
    with (
        KstoreBroker(tmp_path / "source") as source,
        KstoreCluster(tmp_path / "target", overrides=overrides) as cluster,
    ):
        cluster.start()

        def kill_broker(draws: random.Random) -> None:
            cluster.restart(draws.choice([1, 2, 3]), kill=True)

        copied_under_kills(source, lambda: cluster.bootstrap, kill_broker, rounds=12, seed=seed)
        until(lambda: cluster.all_in_sync(TOPIC, PARTITIONS), "all replicas are in sync")
        for index in range(PARTITIONS):
            wanted = log_bytes(source.log_dir, TOPIC, index)
            for broker in cluster.brokers.values():
                until(
                    lambda folder=broker.log_dir, index=index, wanted=wanted: (
                        log_bytes(folder, TOPIC, index) == wanted
                    ),
                    f"{broker.log_dir} has the source's bytes of partition {index}",
                )
