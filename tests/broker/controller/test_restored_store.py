"""The coordination store is restored from an older copy while the logs keep everything: its leader
epochs, leaders and in-sync replicas are older than the logs. No acknowledged record is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kstore
from kstore.clients import Producer
from tests.beside.waiting import until
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster

if TYPE_CHECKING:
    from tests.conformance.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.slow

NODES = (1, 2, 3)
UNBALANCED = {"auto.leader.rebalance.enable": "false"}
SHORT_SESSIONS = {"zookeeper.session.timeout.ms": "3000"}


class Story:
    """A cluster with one partition, and what was acknowledged."""

    def __init__(self, folder: Path, overrides: dict[str, str], zookeeper: str | None = None):
        self.cluster = KstoreCluster(folder, overrides=overrides, zookeeper=zookeeper)
        self.store = folder / "coordination"
        self.copy = folder / "copy"
        self.acknowledged: list[bytes] = []

    @contextmanager
    def store_at_rest(self) -> Iterator[None]:
        """Nobody uses the files of the store; the brokers are stopped."""
        yield

    def begin(self) -> None:
        """Make the topic, write to it, and copy the store."""
        self.cluster.create_topic("t")
        self.cluster.wait_for_isr("t", NODES)
        self.write("before the copy")
        self.cluster.stop(*NODES)
        with self.store_at_rest():
            shutil.copytree(self.store, self.copy)
        self.cluster.start(*NODES)
        self.cluster.wait_for_isr("t", NODES)

    def write(self, word: str) -> None:
        """With acks=all."""
        values = [b"%s %d" % (word.encode(), number) for number in range(20)]
        with Producer(self.cluster.bootstrap, acks="all", linger_ms=0) as producer:
            for value in values:
                producer.send("t", value=value, partition=0).result(60)
        self.acknowledged += values

    def move(self, *, back: bool = True) -> int:
        """Kill the leader until another one leads; returns its id."""
        led = self.cluster.leader("t")
        self.cluster.kill(led)
        self.cluster.wait_for_leader("t", not_=led)
        if back:
            self.cluster.start(led)
            self.cluster.wait_for_isr("t", NODES)
        return led

    def epoch(self) -> int:
        return self.cluster.topic("t").partitions[0].leader_epoch

    def restart_with_older_store(self, first: int = NODES[0]) -> None:
        """Stop everything, and start it with the copy of the store, one broker first."""
        self.cluster.stop(*[each for each in NODES if self.cluster.runs(each)])
        with self.store_at_rest():
            shutil.rmtree(self.store)
            shutil.copytree(self.copy, self.store)
        self.cluster.start(first)
        self.cluster.start(*[each for each in NODES if each != first])

    def check(self) -> None:
        """All replicas have all acknowledged records, also once their brokers have ended."""
        self.cluster.wait_for_isr("t", NODES)
        self.write("after it")
        self.cluster.stop(*NODES)
        for node in NODES:
            folder = self.cluster.brokers[node].log_dir
            with kstore.open_log(folder, topic="t", read_only=True) as log:
                found = [record.value for record in log.records(0)]
            assert [value for value in found if value in set(self.acknowledged)] == (
                self.acknowledged
            )


class ZooKeeperStory(Story):
    """The store is a ZooKeeper's data folder: its snapshots and transaction logs."""

    def __init__(self, folder: Path, overrides: dict[str, str], server: ZooKeeperServer) -> None:
        super().__init__(folder, overrides | SHORT_SESSIONS, f"{server.bootstrap}/kstore")
        self.server = server
        self.store = server.log_dir

    @contextmanager
    def store_at_rest(self) -> Iterator[None]:
        """Stop the server, and start it again."""
        self.server.stop()
        yield
        self.server.start()


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path, THREE_REPLICAS | UNBALANCED)


@pytest.mark.parametrize(
    "moves",
    [pytest.param(1, marks=pytest.mark.thorough), 2, pytest.param(5, marks=pytest.mark.thorough)],
)
def test_no_replica_loses_acknowledged_records(story: Story, moves: int) -> None:
    no_records_are_lost(story, moves)


@pytest.mark.thorough
@pytest.mark.java
def test_no_replica_loses_acknowledged_records_with_zookeeper(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Its transaction ids, which are broker epochs, also begin again at those of the copy."""
    no_records_are_lost(ZooKeeperStory(tmp_path, THREE_REPLICAS | UNBALANCED, zookeeper_server), 2)


def no_records_are_lost(story: Story, moves: int) -> None:
    """The leader moves this often after the copy."""
    cluster = story.cluster
    with cluster:
        story.begin()
        for number in range(moves):
            story.move()
            story.write(f"move {number}")
        known = story.epoch()
        story.restart_with_older_store()
        # At first brokers answer with the leader and the epoch of the copy, or of an election that
        # the leader's log refuses: it can have the epoch that was known.
        until(lambda: story.epoch() > known, f"a leader epoch above {known}")
        cluster.wait_for_leader("t")
        story.check()


def test_a_replica_that_was_away_does_not_lead_although_the_store_prefers_it(story: Story) -> None:
    cluster = story.cluster
    with cluster:
        story.begin()
        story.move()
        story.write("move")
        away = story.move(back=False)
        story.write("without it")
        story.restart_with_older_store(first=away)
        cluster.wait_for_leader("t", not_=away)
        story.check()
