"""Unclean elections on real brokers that are killed with -9: a consumer, and a group by its
committed offsets, learns exactly which of its processed records no longer exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstore.cli.app import run
from kstore.cli.failure import FAILED
from kstore.clients import Consumer, LostRecords, Producer, TopicPartition
from tests.beside.topic_records import records_of
from tests.conformance.kstore_cluster import KstoreCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}
FIRST, SECOND = 1, 2
"""The replicas of the topic. Broker 3 keeps the group's offsets meanwhile."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreCluster]:
    with KstoreCluster(tmp_path_factory.mktemp("cluster"), overrides=SETTINGS) as running:
        running.create_topic(
            "t", replicas={0: (FIRST, SECOND)},
            configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
        )  # fmt: skip
        yield running


class Reader:
    """A consumer of the group, with all its records and reports."""

    def __init__(self, cluster: KstoreCluster, bootstrap: str) -> None:
        self.lost: list[LostRecords] = []
        self.read: dict[int, bytes] = {}
        """Its records that were not reported lost, by offset."""
        self.consumer = Consumer(
            bootstrap, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest",
            on_truncation=self._told, retry_backoff_ms=20,
        )  # fmt: skip
        self.consumer.assign([TopicPartition("t", 0)])

    def _told(self, event: LostRecords) -> None:
        self.lost.append(event)
        for offset in range(event.first_offset, event.last_offset + 1):
            self.read.pop(offset, None)

    def until(self, value: bytes) -> None:
        """Read on until a value comes."""
        found = False
        while not found:
            for record in self.consumer.poll(1000):
                assert record.offset not in self.read  # not twice, unless it was reported lost
                self.read[record.offset] = record.value or b""
                found = found or record.value == value


def write(bootstrap: str, name: str, count: int) -> bytes:
    """Numbered records; the last of them."""
    with Producer(bootstrap, acks="all") as producer:
        for number in range(count):
            producer.send("t", b"%s-%d" % (name.encode(), number), partition=0)
    return b"%s-%d" % (name.encode(), count - 1)


def everything(bootstrap: str) -> dict[int, bytes]:
    """The log as it is now, by offset."""
    return {record.offset: record.value or b"" for record in records_of(bootstrap, "t")}


def leads(cluster: KstoreCluster, stops: int, starts: int) -> None:
    """Kill the leader, and start the other replica, which has not what it had."""
    cluster.kill(stops)
    cluster.start(starts)
    assert cluster.wait_for_leader("t", not_=stops) == starts


def fall_apart(cluster: KstoreCluster, wrote: Callable[[bytes], Any]) -> None:
    """Both replicas have ten records; then the first one alone gets ten more, is killed, and the
    second one leads, and gets five others.
    """
    wrote(write(cluster.bootstrap, "both", 10))
    cluster.wait_for_isr("t", {FIRST, SECOND})
    cluster.kill(SECOND)
    cluster.wait_for_isr("t", {FIRST})
    wrote(write(cluster.bootstrap, "first", 10))
    leads(cluster, FIRST, SECOND)


def test_a_running_consumer_is_told_exactly_what_is_lost(cluster: KstoreCluster) -> None:
    reader = Reader(cluster, cluster.bootstrap)
    fall_apart(cluster, reader.until)
    assert len(reader.read) == 20
    reader.until(write(cluster.bootstrap, "second", 5))
    (event,) = reader.lost
    assert (event.first_offset, event.last_offset, event.is_exact) == (10, 19, True)
    assert event.current_leader_epoch > event.last_leader_epoch
    assert reader.read == everything(cluster.bootstrap)

    # The first replica is back, without what the second one got alone.
    leads(cluster, SECOND, FIRST)
    reader.until(write(cluster.bootstrap, "again", 5))
    event = reader.lost[-1]
    assert (event.first_offset, event.last_offset, event.is_exact) == (10, 14, True)
    assert reader.read == everything(cluster.bootstrap)
    assert len(reader.lost) == 2
    reader.consumer.close()


def test_a_group_is_told_by_its_committed_offsets(cluster: KstoreCluster) -> None:
    everywhere = cluster.bootstrap
    before = Reader(cluster, everywhere)

    def commit(last: bytes) -> None:
        before.until(last)
        before.consumer.commit()

    fall_apart(cluster, commit)
    processed = dict(before.read)
    before.consumer.close()
    last = write(cluster.bootstrap, "second", 15)
    with cluster.admin() as admin:
        assert run(["group", "verify", "g", "-b", everywhere]) == FAILED
        (check,) = admin.verify_group_offsets("g").values()
    assert (check.committed.offset, check.end_offset, check.is_wrong) == (20, 25, True)
    after = Reader(cluster, everywhere)
    after.until(last)
    (event,) = after.lost
    assert event == check.lost
    assert (event.first_offset, event.last_offset) == (10, 19)
    # The commit has the last of its leader epochs only, which the second replica never had.
    assert not event.is_exact
    log = everything(cluster.bootstrap)
    assert {o: v for o, v in processed.items() if o < 10} | after.read == log
    after.consumer.commit()
    assert run(["group", "verify", "g", "-b", everywhere]) == 0
    after.consumer.close()
    again = Reader(cluster, everywhere)
    again.until(write(cluster.bootstrap, "more", 1))
    assert again.lost == []
    again.consumer.close()
