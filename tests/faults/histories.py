"""Unmodified clients that record their responses while brokers fail, and the rules for them: no
acknowledged record is lost or duplicated, order is kept, and an offset never has two different
records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, ClassVar

import confluent_kafka as ck

from kstore.errors import KafkaError
from tests.beside.librdkafka import consumer_of, read_all
from tests.beside.waiting import until
from tests.beside.worker import Worker
from tests.conformance.kstore_cluster import PARTITIONS, KstoreCluster
from tests.reference.linearizability import Operation

CLIENT = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 1000,
}
Record = tuple[int, int, str]
"""Partition, offset, value."""


class NumberedProducer(Worker):
    """Idempotent, acks=all: each partition gets "name-partition-0", "-1", ... in order, several at
    a time, with ``after`` appended to the number.
    """

    PAUSE_S = 0.0
    CONFIG: ClassVar[dict[str, object]] = {}

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, after: str = ""
    ) -> None:
        super().__init__(name)
        self._config = {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "delivery.timeout.ms": 120_000,
            **self.CONFIG,
        }
        self._topic, self._partitions, self._after = topic, partitions, after

    def delivered(self, error: Any, message: Any) -> None:
        raise NotImplementedError

    def work(self) -> None:
        """Until stopped; then until each record has its answer."""
        producer = ck.Producer(self._config)
        number = 0
        while not self.stopping.wait(self.PAUSE_S):
            for partition in range(self._partitions):
                value = f"{self.name}-{partition}-{number}{self._after}"
                producer.produce(
                    self._topic, value, partition=partition, on_delivery=self.delivered
                )
            number += 1
            producer.poll(0.005)
        left = producer.flush(120)
        assert not left, f"{left} records of {self.name} have no answer"


class Producer(NumberedProducer):
    """One that remembers each record. It pauses, because clients and brokers that work as fast as
    they can take several times the CPU, and no other path.
    """

    PAUSE_S = 0.01
    CONFIG: ClassVar[dict[str, object]] = {"linger.ms": 1}

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name, bootstrap, topic, partitions)
        self.acknowledged: list[Record] = []
        self.failed: list[tuple[str, str]] = []

    def delivered(self, error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is None:
            self.acknowledged.append((message.partition(), message.offset(), value))
        else:
            self.failed.append((value, str(error)))


class Reader(Worker):
    """Reads all partitions from the start, again and again what is new, and notes what it saw."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, isolation: str) -> None:
        super().__init__("reader")
        self._servers, self._topic, self._partitions = bootstrap, topic, partitions
        self._config = CLIENT | {"isolation.level": isolation, "auto.offset.reset": "error"}
        self.seen: list[Record] = []

    def work(self) -> None:
        places = [ck.TopicPartition(self._topic, p, 0) for p in range(self._partitions)]
        with closing(consumer_of(self._servers, "reader", self._config)) as consumer:
            consumer.assign(places)
            while not self.stopping.is_set():
                for message in consumer.consume(500, timeout=0.1):
                    if message.error() is None:
                        value = message.value().decode()
                        self.seen.append((message.partition(), message.offset(), value))


class Copier(Worker):
    """Consume, transform, produce in transactions: each input record must be in the output once,
    whatever fails. A failed transaction is aborted and started again from the committed offsets.
    Sometimes librdkafka waits for a coordinator whose broker has long been back: the limits are
    short, and another producer takes over.
    """

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        super().__init__("copier")
        self._servers, self._source, self._target = bootstrap, source, target
        self.transactions = 0

    def work(self) -> None:
        """Until stopped and nothing is left to copy."""
        transactions = {"transactional.id": "copier", "transaction.timeout.ms": 30_000}
        settings = {"isolation.level": "read_committed", "session.timeout.ms": 10_000}
        while True:
            producer = ck.Producer(CLIENT | {"bootstrap.servers": self._servers} | transactions)
            consumer = consumer_of(self._servers, "copier", CLIENT | settings)
            try:
                with closing(consumer):
                    if self._copy(producer, consumer):
                        return
            except ck.KafkaException:
                time.sleep(0.2)  # then a new producer fences this one, whose transaction is aborted

    def _copy(self, producer: Any, consumer: Any) -> bool:
        producer.init_transactions(30)
        consumer.subscribe([self._source])
        quiet = 0
        while True:
            messages = [m for m in consumer.consume(200, timeout=0.3) if m.error() is None]
            if not messages:
                quiet = quiet + 1 if consumer.assignment() else 0
                if self.stopping.is_set() and quiet > 10:
                    return True
                continue
            quiet = 0
            producer.begin_transaction()
            for message in messages:
                producer.produce(self._target, message.value(), partition=message.partition())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 10
            )
            producer.commit_transaction(15)
            self.transactions += 1


class LeaderWatcher(Worker):
    """Asks every broker repeatedly which broker leads, and records the leaders of each leader
    epoch.
    """

    def __init__(self, ask: Callable[[int], Iterable[tuple[int, int, int]]], nodes: list[int]):
        """``ask(node)`` gives (partition, leader epoch, leader) as that broker knows them."""
        super().__init__("leaders")
        self._ask, self._nodes = ask, nodes
        self.leaders: dict[tuple[int, int], set[int]] = {}
        self.went_back: list[str] = []

    def work(self) -> None:
        """Until stopped; a broker that is away is asked again in the next round."""
        newest: dict[tuple[int, int], int] = {}
        while not self.stopping.wait(0.1):
            for node in self._nodes:
                try:
                    rows = list(self._ask(node))
                except (KafkaError, OSError):
                    # A restarted broker may start with the first metadata that it gets.
                    newest = {key: epoch for key, epoch in newest.items() if key[0] != node}
                    continue
                for partition, epoch, leader in rows:
                    if epoch < newest.get((node, partition), 0):
                        self.went_back.append(f"broker {node}, partition {partition}: {epoch}")
                    newest[node, partition] = epoch
                    if leader >= 0:
                        self.leaders.setdefault((partition, epoch), set()).add(leader)


class CommitClient(Worker):
    """Commits and reads one group's offset without being a member, as tools do: the register of
    the linearizability check. Each value is written once.
    """

    def __init__(self, number: int, bootstrap: str, topic: str, clock: Callable[[], float]) -> None:
        super().__init__(f"commits-{number}")
        self._number, self._servers, self._topic, self._clock = number, bootstrap, topic, clock
        self.history: list[Operation] = []

    def work(self) -> None:
        """Until stopped, with a pause between two operations."""
        place = ck.TopicPartition(self._topic, 0)
        turn = 0
        with closing(consumer_of(self._servers, "register", CLIENT)) as consumer:
            while not self.stopping.wait(0.15):
                turn += 1
                called = self._clock()
                if turn % 2:
                    value = turn * 10 + self._number
                    operation = Operation("write", value, called)
                    try:
                        answer = consumer.commit(
                            offsets=[ck.TopicPartition(self._topic, 0, value)], asynchronous=False
                        )
                        if answer[0].error is None:
                            operation = operation._replace(returned=self._clock())
                    except ck.KafkaException:
                        pass  # whether it happened is not known
                    self.history.append(operation)
                else:
                    try:
                        (found,) = consumer.committed([place], timeout=5)
                    except ck.KafkaException:
                        continue
                    if found.error is None:
                        value = max(found.offset, 0)
                        self.history.append(Operation("read", value, called, self._clock()))


def all_records(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[Record]:
    """Everything that the topic holds now, up to the ends at the call."""
    settings = CLIENT | {"isolation.level": isolation}
    found = read_all(bootstrap, topic, range(partitions), settings)
    return [(each.partition(), each.offset(), each.value().decode()) for each in found]


def check_records(stored: list[Record], producers: list[Producer], seen: list[Record]) -> None:
    """Check every rule on the producers' responses, the reader's records, and the
    topic's contents.
    """
    by_place = {(partition, offset): value for partition, offset, value in stored}
    assert len(by_place) == len(stored)
    doubled = [value for value, count in Counter(v for _, _, v in stored).items() if count > 1]
    assert not doubled, f"stored more than once: {doubled[:5]}"
    values = {(partition, value) for partition, _, value in stored}
    for producer in producers:
        # librdkafka knows no offset of a batch that was sent again and answered as a duplicate.
        lost = [
            r
            for r in producer.acknowledged
            if ((r[0], r[2]) not in values if r[1] is None else by_place.get(r[:2]) != r[2])
        ]
        assert not lost, f"acknowledged, and not there: {lost[:5]} of {len(lost)}"
    changed = [r for r in seen if by_place.get(r[:2]) != r[2]]
    assert not changed, f"read once, and then another record or none: {changed[:5]}"
    last: dict[tuple[str, int], int] = {}
    for partition, _, value in sorted(stored):
        name, _, number = value.rsplit("-", 2)
        assert int(number) > last.get((name, partition), -1), f"out of order: {value}"
        last[name, partition] = int(number)


class Traffic:
    """Two producers and a reader on a new topic with three replicas: from its first acknowledged
    record on until `finish` or `check`.
    """

    def __init__(self, cluster: KstoreCluster) -> None:
        cluster.create_topic("orders", PARTITIONS, 3)
        self._cluster, servers = cluster, cluster.bootstrap
        self.producers = [Producer(f"p{n}", servers, "orders", PARTITIONS) for n in range(2)]
        self.reader = Reader(servers, "orders", PARTITIONS, "read_uncommitted")
        for worker in (*self.producers, self.reader):
            worker.start()
        until(lambda: self.producers[0].acknowledged, "the first record is acknowledged")

    def finish(self) -> list[Record]:
        """Stop them all; what the topic holds then."""
        for worker in (*self.producers, self.reader):
            worker.finish()
        return all_records(self._cluster.bootstrap, "orders", PARTITIONS, "read_uncommitted")

    def check(self) -> None:
        """Stop them all, and compare their responses with the topic's contents."""
        check_records(self.finish(), self.producers, self.reader.seen)
