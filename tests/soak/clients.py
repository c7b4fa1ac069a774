"""The clients of a soak. Unlike those of tests/faults they store no records, only the last number
for each producer and partition, because a run of hours must not grow.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import confluent_kafka as ck

from kstore.clients import AdminClient, NewTopic
from kstore.errors import KafkaError
from tests.beside.librdkafka import consumer_of
from tests.beside.worker import Worker
from tests.conformance.kstore_cluster import KstoreCluster
from tests.faults.histories import CLIENT, NumberedProducer

VALUE_BYTES = 500


class SteadyProducer(NumberedProducer):
    """Some records every 50 ms, each with padding."""

    PAUSE_S = 0.05

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name, bootstrap, topic, partitions, after="-" + "x" * VALUE_BYTES)
        self.acknowledged = dict.fromkeys(range(partitions), -1)
        """The last number that each partition has acknowledged."""
        self.failed: list[str] = []

    def delivered(self, error: Any, message: Any) -> None:
        _, partition, number, _ = message.value().decode().split("-")
        if error is not None:
            self.failed.append(f"{self.name}-{partition}-{number}: {error}")
        else:
            self.acknowledged[int(partition)] = int(number)


class OrderReader(Worker):
    """Reads everything as it comes: of each producer and partition every number once, in order."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("reader")
        self._servers, self._topic, self._partitions = bootstrap, topic, partitions
        self.last: dict[tuple[str, int], int] = {}
        self.records = 0
        self.wrong: list[str] = []

    def work(self) -> None:
        places = [ck.TopicPartition(self._topic, p, 0) for p in range(self._partitions)]
        settings = CLIENT | {"auto.offset.reset": "error"}
        with closing(consumer_of(self._servers, "reader", settings)) as consumer:
            consumer.assign(places)
            while not self.stopping.is_set():
                for message in consumer.consume(500, timeout=0.2):
                    if message.error() is None:
                        self._take(message)

    def _take(self, message: Any) -> None:
        name, _, number, _ = message.value().decode().split("-")
        key = name, message.partition()
        expected = self.last.get(key, -1) + 1
        if int(number) != expected:
            place = f"{message.partition()}@{message.offset()}"
            self.wrong.append(f"{place}: {name}-{number} where {expected} was to come")
        self.last[key] = int(number)
        self.records += 1

    def has_read(self, producers: list[SteadyProducer]) -> bool:
        """Whether all that was acknowledged has been read."""
        return all(
            self.last.get((producer.name, partition), -1) >= number
            for producer in producers
            for partition, number in producer.acknowledged.items()
        )


class _Rounds(Worker):
    """Does one thing again and again. What fails because a broker is away is counted, and done
    again in the next round; anything else ends the run.
    """

    def __init__(self, name: str, cluster: KstoreCluster, pause_s: float) -> None:
        super().__init__(name)
        self.cluster, self._pause_s = cluster, pause_s
        self.done = self.put_off = 0

    def work(self) -> None:
        for number in itertools.count():
            if self.stopping.wait(self._pause_s):
                return
            try:
                self.turn(number)
                self.done += 1
            except (ck.KafkaException, KafkaError, OSError):
                self.put_off += 1

    def turn(self, number: int) -> None:
        raise NotImplementedError


class Expander(_Rounds):
    """A topic grows, partition by partition, then is deleted and created again."""

    TOPIC, MOST = "growing", 8

    def turn(self, number: int) -> None:
        """One partition more, or a new topic."""
        with self.cluster.admin(timeout_ms=15_000) as admin:
            if self.TOPIC not in admin.list_topics():
                admin.create_topics([NewTopic(self.TOPIC, 1, 3)])
                return
            (found,) = admin.describe_topics([self.TOPIC])
            count = len(found.partitions)
            if count >= self.MOST:
                admin.delete_topics([self.TOPIC])
            else:
                admin.create_partitions({self.TOPIC: count + 1})


class Churn(_Rounds):
    """What clients of a busy day do: each round one of `kinds`, in turn."""

    def __init__(self, cluster: KstoreCluster, topic: str, pause_s: float) -> None:
        super().__init__("churn", cluster, pause_s)
        self._topic = topic
        self.kinds: tuple[Callable[[int], None], ...] = (
            lambda number: self._group(number, "classic"),
            lambda number: self._group(number, "consumer"),
            self._transaction,
            self._topic_of_a_moment,
            self._questions,
        )

    def turn(self, number: int) -> None:
        """One kind after the other."""
        self.kinds[number % len(self.kinds)](number)

    def _group(self, number: int, protocol: str) -> None:
        """Two members of a group, which join, read, commit and leave."""
        config = CLIENT | {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": f"group-{protocol}-{number % 7}",
            "group.protocol": protocol,
            "auto.offset.reset": "latest",
        }
        members = [ck.Consumer(config) for _ in range(2)]
        try:
            for member in members:
                member.subscribe([self._topic])
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                for member in members:
                    member.consume(100, timeout=0.1)
        finally:
            for member in members:
                member.close()

    def _transaction(self, number: int) -> None:
        """One that is committed, one that is aborted."""
        config = CLIENT | {
            "bootstrap.servers": self.cluster.bootstrap,
            "transactional.id": f"transactions-{number % 5}",
            "transaction.timeout.ms": 20_000,
        }
        producer = ck.Producer(config)
        producer.init_transactions(15)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for index in range(10):
                producer.produce("transactions", f"{number}-{index}")
            end(15)

    def _topic_of_a_moment(self, number: int) -> None:
        with self.cluster.admin(timeout_ms=15_000) as admin:
            name = f"moment-{number % 3}"
            if name in admin.list_topics():
                admin.delete_topics([name])
            else:
                admin.create_topics([NewTopic(name, 3, 2)])

    def _questions(self, number: int) -> None:
        with AdminClient(self.cluster.bootstrap, default_api_timeout_ms=15_000) as admin:
            admin.list_groups()
            admin.describe_topics([self._topic])
            admin.describe_cluster()
