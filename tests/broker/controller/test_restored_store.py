"""The coordination store is restored from an older copy while the logs keep everything: its leader
epochs, leaders and in-sync replicas are older than the logs. No acknowledged record is lost.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kstore
from kstore.clients import Producer
from tests.beside.waiting import until
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster

pytestmark = pytest.mark.slow

NODES = (1, 2, 3)
UNBALANCED = {"auto.leader.rebalance.enable": "false"}


class Story:
    """A cluster with one partition, and what was acknowledged."""

    def __init__(self, folder: Path, overrides: dict[str, str]) -> None:
        self.cluster = KstoreCluster(folder, overrides=overrides)
        self.copy = folder / "copy"
        self.acknowledged: list[bytes] = []

    def begin(self) -> None:
        """Make the topic, write to it, and copy the store."""
        self.cluster.create_topic("t")
        self.cluster.wait_for_isr("t", NODES)
        self.write("before the copy")
        self.cluster.stop(*NODES)
        shutil.copytree(self.cluster.folder / "coordination", self.copy)
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
        """The current leader epoch."""
        return self.cluster.topic("t").partitions[0].leader_epoch

    def restart_with_older_store(self, first: int = NODES[0]) -> None:
        """Stop everything, and start it with the copy of the store, one broker first."""
        self.cluster.stop(*[each for each in NODES if self.cluster.runs(each)])
        shutil.rmtree(self.cluster.folder / "coordination")
        shutil.copytree(self.copy, self.cluster.folder / "coordination")
        self.cluster.start(first)
        self.cluster.start(*[each for each in NODES if each != first])

    def check(self) -> None:
        """All replicas have all acknowledged records, and can read them after their brokers have
        ended.
        """
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


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path, THREE_REPLICAS | UNBALANCED)


@pytest.mark.parametrize("moves", [1, 2, 5])
def test_no_replica_loses_acknowledged_records(story: Story, moves: int) -> None:
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
