"""Share consumers while brokers are killed: accepted records stay so, and none is lost."""

from __future__ import annotations

import time
import uuid
from collections import Counter

import pytest

from kstore.clients import Producer, ShareConsumer, ShareRecord, TopicPartition
from kstore.clients.admin import ConfigResource
from tests.beside.waiting import answer_of
from tests.beside.worker import Worker
from tests.conformance.kstore_cluster import KstoreCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}
STATES = "__share_group_state"
RECORDS = 3000
LIMIT = 10
"""Deliveries of a record."""
MOST_S = 60


class Member(Worker):
    """A member that accepts most records, and releases one of seven the first time."""

    def __init__(self, cluster: KstoreCluster, topic: str, group: str) -> None:
        super().__init__("member")
        self.addresses = ",".join(broker.bootstrap for broker in cluster.brokers.values())
        self.topic, self.group = topic, group
        self.delivered: list[tuple[float, int, int]] = []
        """(when, offset, delivery count)."""
        self.accepted: dict[int, float] = {}
        """Offset to when it was known."""
        self.asked: set[int] = set()
        """What may be accepted: the answer can be lost with a broker."""

    def work(self) -> None:
        with ShareConsumer(
            self.addresses, self.topic, group_id=self.group, share_acknowledgement_mode="explicit"
        ) as consumer:
            while not self.stopping.is_set():
                self._handle(consumer, consumer.poll(500, max_records=100))

    def _handle(self, consumer: ShareConsumer, records: list[ShareRecord]) -> None:
        now = time.monotonic()
        accepted = []
        for record in records:
            self.delivered.append((now, record.offset, record.delivery_count))
            if record.offset % 7 == 0 and record.delivery_count == 1:
                consumer.acknowledge(record, "release")
            else:
                consumer.acknowledge(record)
                accepted.append(record.offset)
        if records:
            self.asked.update(accepted)
            result = consumer.commit(30_000)
            if result.get(TopicPartition(self.topic, 0)) is None:
                self.accepted |= dict.fromkeys(accepted, time.monotonic())


def test_what_was_accepted_survives_the_leader_and_the_coordinator(cluster: KstoreCluster) -> None:
    topic, group = f"t-{uuid.uuid4()}", f"g-{uuid.uuid4()}"
    cluster.create_topic(topic)
    with cluster.admin() as admin:
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": "3000",
            "share.delivery.count.limit": str(LIMIT),
        }
        admin.alter_resource_configs({ConfigResource("group", group): configs})
    workers = [Member(cluster, topic, group) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        killed = 0
        with Producer(workers[0].addresses, linger_ms=5) as producer:
            for n in range(RECORDS):
                producer.send(topic, b"%d" % n)
                if n % 1000 == 999:
                    producer.flush()
                    _wait(workers, n // 2)
                    place = (topic, STATES)[killed % 2]
                    leader = cluster.wait_for_leader(place)
                    cluster.kill(leader)
                    cluster.start(leader)
                    killed += 1
        _wait(workers, RECORDS)
        with cluster.admin() as admin:
            answer_of(
                lambda: next(iter(admin.list_share_group_offsets(group).values())).start_offset,
                lambda start: start == RECORDS,
                "everything is done",
                MOST_S,
            )
    finally:
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.finish()
    _check(workers)


def _wait(workers: list[Member], count: int) -> None:
    """Wait until this number of offsets was accepted."""

    def missing() -> list[int]:
        assert all(worker.problem is None for worker in workers), workers[0].problem
        return sorted(set(range(RECORDS)) - workers[0].asked - workers[1].asked)

    answer_of(missing, lambda rest: RECORDS - len(rest) >= count, f"{count} of them", MOST_S)


def _check(workers: list[Member]) -> None:
    known: dict[int, float] = {}
    for worker in workers:
        for offset, when in worker.accepted.items():
            assert offset not in known, f"{offset} was accepted twice"
            known[offset] = when
    assert workers[0].asked | workers[1].asked == set(range(RECORDS)), "nothing is lost"
    counts: Counter[int] = Counter()
    highest: dict[int, int] = {}
    for when, offset, count in sorted(row for worker in workers for row in worker.delivered):
        assert when <= known.get(offset, when), f"{offset} came again after it was accepted"
        assert count <= LIMIT
        counts[offset] += 1
        highest[offset] = max(highest.get(offset, 0), count)
    assert all(highest[offset] >= 2 for offset in range(0, RECORDS, 7))
