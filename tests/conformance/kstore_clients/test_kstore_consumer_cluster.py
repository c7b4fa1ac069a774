"""kstore's consumer on three brokers: leaders move, brokers are killed, racks have replicas."""

from __future__ import annotations

import threading

import pytest

from kstore.clients import Consumer, Producer
from kstore.types import TopicPartition
from tests.conformance.kstore_cluster import KstoreCluster

pytestmark = pytest.mark.slow
LONG_MS = 60_000
SETTINGS = {"min.insync.replicas": "2"}


class Feed:
    """Sends numbers to partitions in turn until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.sent = [0] * partitions
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer(bootstrap, delivery_timeout_ms=120_000)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.002):
            for partition in range(len(self.sent)):
                value = b"%d" % self.sent[partition]
                self._producer.send(self._topic, value, partition=partition)
                self.sent[partition] += 1

    def stop(self) -> None:
        """All that was sent is in the log then."""
        self._is_over.set()
        self._thread.join()
        self._producer.close()


def test_a_reader_misses_and_repeats_nothing_while_leaders_die_and_move(
    cluster: KstoreCluster, topic: str
) -> None:
    cluster.create_topic(topic, partitions=3)
    feed = Feed(cluster.bootstrap, topic, 3)
    found: list[list[int]] = [[], [], []]

    def read(consumer: Consumer, until: int) -> None:
        wanted = sum(map(len, found)) + until
        while sum(map(len, found)) < wanted:
            records = consumer.poll(LONG_MS)
            assert records, cluster.output()
            for record in records:
                found[record.partition].append(int(record.value or b"-1"))

    try:
        with Consumer(
            topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            read(consumer, 100)
            victim = cluster.leader(topic, 0)
            cluster.kill(victim)
            read(consumer, 300)
            cluster.start(victim)
            other = cluster.wait_for_leader(topic, 1)
            cluster.wait_for_isr(topic, (1, 2, 3), 1)
            cluster.restart(other)
            read(consumer, 300)
            feed.stop()
            while any(len(found[p]) < feed.sent[p] for p in range(3)):
                read(consumer, 1)
    finally:
        feed.stop()
    assert found == [list(range(n)) for n in feed.sent]


def test_positions_and_ends_are_told_while_a_broker_is_down(
    cluster: KstoreCluster, topic: str
) -> None:
    cluster.create_topic(topic, partitions=3)
    with Producer(cluster.bootstrap) as producer:
        for n in range(30):
            producer.send(topic, b"%d" % n, partition=n % 3)
    partitions = [TopicPartition(topic, n) for n in range(3)]
    with Consumer(cluster.bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign(partitions)
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, 10)
        victim = cluster.leader(topic, 2)
        cluster.kill(victim)
        assert [consumer.position(tp) for tp in partitions] == [10, 10, 10]
        assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        consumer.seek_to_beginning()
        found = 0
        while found < 30:
            records = consumer.poll(LONG_MS)
            assert records
            found += len(records)
    cluster.start(victim)


def test_a_reader_is_served_by_the_replica_in_its_rack(cluster: KstoreCluster, topic: str) -> None:
    cluster.create_topic(topic, replicas={0: (1, 2, 3)})
    with Producer(cluster.bootstrap) as producer:
        for n in range(40):
            producer.send(topic, b"%d" % n * 500, partition=0)
            producer.flush()
    cluster.wait_for_isr(topic, (1, 2, 3))
    leader = cluster.wait_for_leader(topic)
    rack = f"rack{1 + leader % 3}"
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest",
        client_rack=rack, max_partition_fetch_bytes=2_000, kstore_fetch_ahead_bytes=1,
        request_timeout_ms=3_000,
    ) as consumer:  # fmt: skip
        found = [record.offset for record in consumer.poll(LONG_MS)]
        while len(found) < 5:
            found += [record.offset for record in consumer.poll(LONG_MS)]
        cluster.pause(leader)  # what is committed can still be read from the follower
        try:
            while len(found) < 30:
                found += [record.offset for record in consumer.poll(LONG_MS)]
        finally:
            cluster.resume(leader)
        while len(found) < 40:
            found += [record.offset for record in consumer.poll(LONG_MS)]
    assert found == list(range(40))
