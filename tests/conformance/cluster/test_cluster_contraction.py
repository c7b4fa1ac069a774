"""Contraction (KIP-253) on three brokers: keys stay in order, for unmodified consumers too, even if
a broker is killed meanwhile. Retired partitions are deleted when they are empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kstore.broker.coordination.contraction_nodes import CONTRACTIONS, read_contraction
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.clients import Producer
from kstore.errors import (
    ErrorCode,
    KafkaError,
    ReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from kstore.types import TopicPartition
from tests.beside.librdkafka import quick_member
from tests.beside.waiting import answer_of, until
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_broker import QUICK_GROUPS
from tests.conformance.kstore_cluster import KstoreCluster
from tests.plain_messages import Ask
from tests.record_requests import add_request

pytestmark = pytest.mark.slow

SETTINGS = QUICK_GROUPS | {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "300",
    "kstore.expansion.timeout.ms": "60000",
}
ORDERED = {"kstore_partition_count_required": "true", "kstore_ordered_expansion": "true"}
KEYS = [b"k%d" % number for number in range(16)]


class Story:
    """A producer of kstore's writes numbers under keys while the topic shrinks."""

    def __init__(self, cluster: KstoreCluster, topic: str, **settings: Any) -> None:
        self.topic = topic
        self.written = 0
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "partitioner.class": "ordered"} | settings
        )
        self._cluster = cluster

    def write(self, rounds: int) -> list[Any]:
        """A number for each key, this many times."""
        sent = []
        for number in range(self.written, self.written + rounds):
            sent += [self._producer.send(self.topic, b"%d" % number, key) for key in KEYS]
        self.written += rounds
        return sent

    def shrink(self, count: int) -> None:
        """Ask for it until it is done: a controller may be killed meanwhile."""

        def asked() -> bool:
            with suppress(KafkaError), self._cluster.admin() as admin:
                admin.create_partitions(self.topic, count, may_shrink=True)
                return True
            return False

        until(asked, "it shrinks")

    def close(self) -> None:
        self._producer.close()


def read_in_order(reader: Any, seen: dict[bytes, int], rounds: int) -> list[int]:
    """Let the consumer read all rounds; returns where each record was. The numbers of each key
    arrive in order.
    """
    parts: list[int] = []

    def enough() -> bool:
        message = reader.poll(0.05)
        if message is not None and message.error() is None:
            key, number = message.key(), int(message.value())
            assert number <= seen.get(key, -1) + 1, (key, seen.get(key), number)
            seen[key] = max(seen.get(key, -1), number)
            parts.append(message.partition())
        return len(seen) == len(KEYS) and min(seen.values()) == rounds - 1

    until(enough, f"all is read, not only {seen}", pause_s=0)
    return parts


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_unmodified_consumer_reads_in_order_across_a_contraction(
    cluster: KstoreCluster, protocol: str
) -> None:
    topic = f"orders-{protocol}"
    client = TopicClient(cluster.brokers[1])
    client.create(topic, 4, 3, **ORDERED)
    story = Story(cluster, topic)
    reader = quick_member(cluster.bootstrap, topic, f"g-{protocol}", **{"group.protocol": protocol})
    seen: dict[bytes, int] = {}
    try:
        for each in story.write(20):
            each.result()
        shrinking = threading.Thread(target=story.shrink, args=(2,))
        shrinking.start()
        sent = story.write(20)
        parts = read_in_order(reader, seen, 40)
        shrinking.join()
        assert {2, 3} < set(parts)
        for each in [*sent, *story.write(20)]:
            each.result()
        assert set(read_in_order(reader, seen, 60)) == {0, 1}
    finally:
        reader.close()
    # Later consumers read retired partitions first.
    late = quick_member(
        cluster.bootstrap, topic, f"late-{protocol}", **{"group.protocol": protocol}
    )
    seen = {}
    try:
        parts = read_in_order(late, seen, 60)
    finally:
        late.close()
    retired = sum(part >= 2 for part in parts)
    assert set(parts[:retired]) == {2, 3}
    assert set(parts[retired:]) == {0, 1}
    story.close()


def test_retired_partitions_are_deleted_once_they_are_empty(cluster: KstoreCluster) -> None:
    client = TopicClient(cluster.brokers[1])
    client.create("ends", 4, 3, **ORDERED)
    story = Story(cluster, "ends")
    for each in story.write(5):
        each.result()
    story.shrink(1)
    for each in story.write(5):
        each.result()
    with cluster.admin() as admin:
        with pytest.raises(KafkaError) as caught:
            admin.create_partitions("ends", 6)
        assert caught.value.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        described = admin.describe_topics(["ends"])[0]
        assert (len(described.partitions), described.remaining) == (4, 1)
        gone = {TopicPartition("ends", index): -1 for index in (1, 2, 3)}
        with suppress(UnknownTopicOrPartitionError):  # they go as soon as they are empty
            admin.delete_records(gone)
        until(
            lambda: len(admin.describe_topics(["ends"])[0].partitions) == 1, "the others are gone"
        )

        def grown() -> bool:
            with suppress(ReassignmentInProgressError):  # while logs are being deleted
                admin.create_partitions("ends", 3)
                return True
            return False

        until(grown, "it grows again")
    for each in story.write(5):
        each.result()
    reader = quick_member(cluster.bootstrap, "ends", "afterwards", **{"group.protocol": "consumer"})
    try:
        seen = dict.fromkeys(KEYS, 4)  # the first five lay in what was deleted, or before
        read_in_order(reader, seen, 15)
    finally:
        reader.close()
    story.close()


def test_transactions_go_on_across_a_contraction(cluster: KstoreCluster) -> None:
    """One that is open gets its marker into a partition that has retired; the next one goes where
    the keys are now.
    """
    TopicClient(cluster.brokers[1]).create("paid", 3, 3, **ORDERED)
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "partitioner.class": "ordered",
        "transactional.id": "payer",
    }
    with Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        first = [producer.send("paid", b"0", key) for key in KEYS]
        for each in first:
            each.result()
        assert {each.partition for each in first} == {0, 1, 2}
        with cluster.admin() as admin:
            admin.create_partitions("paid", 1, may_shrink=True)
        producer.commit_transaction()
        assert adds(cluster, 1) == ErrorCode.INVALID_PARTITION_COUNT
        producer.begin_transaction()
        second = [producer.send("paid", b"1", key) for key in KEYS]
        for each in second:
            each.result()
        producer.commit_transaction()
        assert {each.partition for each in second} == {0}
    reader = quick_member(
        cluster.bootstrap, "paid", "committed", **{"isolation.level": "read_committed"}
    )
    seen: dict[bytes, int] = {}
    try:
        parts = read_in_order(reader, seen, 2)
    finally:
        reader.close()
    assert parts.index(0) >= sum(part > 0 for part in parts), "markers are waited for by nobody"


def adds(cluster: KstoreCluster, index: int) -> int:
    """What becomes of a partition that an older producer adds to its transaction."""
    find = Ask.FindCoordinator(key_type=1, coordinator_keys=["older"])
    found = answer_of(
        lambda: TopicClient(cluster.brokers[1]).call(find, 6).coordinators[0],
        lambda row: row.error_code == 0,
    )
    client = TopicClient(cluster.brokers[found.node_id])
    begin = Ask.InitProducerId(transactional_id="older", transaction_timeout_ms=60_000)
    begun = answer_of(lambda: client.call(begin, 4), lambda answer: answer.error_code == 0)
    request = add_request("older", begun, {"paid": [index]})
    [topic] = client.call(request, 3).results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def test_a_contraction_survives_kill_9_of_controller_and_leader(tmp_path: Path) -> None:
    with KstoreCluster(tmp_path, overrides=SETTINGS) as cluster:
        cluster.wait_for_controller()
        store = LmdbStore(tmp_path / "coordination", shared=True)

        def is_prepared(name: str) -> bool:
            return store.exists(f"{CONTRACTIONS}/{name}")

        def is_decided(name: str) -> bool:
            node = read_contraction(store, name)
            return node is not None and node.holds

        moments: list[tuple[str, Callable[[str], bool], bool]] = [
            ("prepared", is_prepared, True),
            ("led", is_prepared, False),
            ("decided", is_decided, True),
        ]
        try:
            for name, has_come, of_controller in moments:
                kill_while_it_shrinks(cluster, name, has_come, of_controller=of_controller)
        finally:
            store.close()


def kill_while_it_shrinks(
    cluster: KstoreCluster, name: str, has_come: Callable[[str], bool], *, of_controller: bool
) -> None:
    """Kill the controller, or the leader of a partition that retires, at that moment."""
    controller = cluster.wait_for_controller()
    TopicClient(cluster.brokers[controller]).create(name, 5, 3, **ORDERED)
    story = Story(cluster, name)
    for each in story.write(10):
        each.result()
    shrinking = threading.Thread(target=story.shrink, args=(2,))
    shrinking.start()
    sent = story.write(20)
    until(lambda: has_come(name), "the moment has come", pause_s=0)
    victim = controller if of_controller else cluster.leader(name, 4)
    cluster.kill(victim)
    cluster.wait_for_controller(not_=victim)
    cluster.start(victim)
    shrinking.join()
    for each in [*sent, *story.write(5)]:
        each.result()
    reader = quick_member(cluster.bootstrap, name, f"g-{name}")
    try:
        parts = read_in_order(reader, {}, 35)
    finally:
        reader.close()
    assert len(parts) == 35 * len(KEYS), "nothing is there twice"
    story.close()
