"""Kafka's own consumer, unmodified, during a contraction (KIP-253): the records of each key arrive
in order, in both group protocols, and a later consumer reads the retired partitions first.
"""

from __future__ import annotations

import threading

import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from tests.beside.programs import Listened
from tests.beside.waiting import until
from tests.conformance.kafka_broker import tool_command
from tests.conformance.kstore_broker import QUICK_GROUPS, KstoreBroker

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

SETTINGS = QUICK_GROUPS | {"kstore.expansion.timeout.ms": "60000"}
ORDERED = {"kstore.partition.count.required": "true", "kstore.ordered.expansion": "true"}
KEYS = [b"k%d" % number for number in range(8)]
Row = tuple[int, str, int]
"""Partition, key, number."""


class ConsoleConsumer(Listened):
    """kafka-console-consumer, and what it has read."""

    def __init__(self, broker: KstoreBroker, topic: str, group: str, **more: str) -> None:
        settings = {
            "auto.commit.interval.ms": "100",
            "metadata.max.age.ms": "500",
            "auto.offset.reset": "earliest",
        } | more
        if settings.get("group.protocol") == "classic":
            settings["heartbeat.interval.ms"] = "300"
        args = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group]
        for name, value in settings.items():
            args += ["--command-property", f"{name}={value}"]
        for shown in ("key", "partition"):
            args += ["--formatter-property", f"print.{shown}=true"]
        self.rows: list[Row] = []
        super().__init__(tool_command("kafka-console-consumer", args), self._take)

    def _take(self, line: str) -> None:
        partition, key, number = line.split("\t")
        self.rows.append((int(partition.removeprefix("Partition:")), key, int(number)))

    def wait_for(self, count: int) -> None:
        """Wait until this number of records was read."""

        def enough() -> bool:
            assert self.process.poll() is None, "it has ended"
            return len(self.rows) >= count

        until(enough, f"{count} records are read", pause_s=0.05)


def check_order(rows: list[Row], rounds: int) -> None:
    """Each key's numbers are there, in order, once."""
    for key in KEYS:
        assert [row[2] for row in rows if row[1] == key.decode()] == list(range(rounds)), key


@pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.thorough)]
)
def test_javas_consumer_reads_in_order_across_a_contraction(
    files_kstore: KstoreBroker, protocol: str
) -> None:
    topic, written = f"orders-{protocol}", 0
    settings = {"bootstrap.servers": files_kstore.bootstrap, "partitioner.class": "ordered"}
    with AdminClient(files_kstore.bootstrap) as admin, Producer(settings) as producer:
        admin.create_topics([NewTopic(topic, 4, 1, configs=ORDERED)])

        def write(rounds: int) -> None:
            nonlocal written
            for number in range(written, written + rounds):
                for key in KEYS:
                    producer.send(topic, b"%d" % number, key)
            written += rounds

        write(20)
        producer.flush()
        reader = ConsoleConsumer(files_kstore, topic, "g", **{"group.protocol": protocol})
        try:
            reader.wait_for(10)
            shrinking = threading.Thread(
                target=lambda: admin.create_partitions(topic, 2, may_shrink=True)
            )
            shrinking.start()
            write(20)
            reader.wait_for(40 * len(KEYS))
            shrinking.join()
            write(20)
            producer.flush()
            reader.wait_for(60 * len(KEYS))
        finally:
            reader.stop()
    check_order(reader.rows, 60)
    assert {row[0] for row in reader.rows} >= {2, 3}
    assert {row[0] for row in reader.rows[-20 * len(KEYS) :]} == {0, 1}
    late = ConsoleConsumer(files_kstore, topic, "late", **{"group.protocol": protocol})
    try:
        late.wait_for(60 * len(KEYS))
    finally:
        late.stop()
    check_order(late.rows, 60)
    parts = [row[0] for row in late.rows]
    retired = sum(part >= 2 for part in parts)
    assert retired
    assert set(parts[:retired]) == {2, 3}


@pytest.mark.parametrize(
    "protocol", [pytest.param("classic", marks=pytest.mark.thorough), "consumer"]
)
def test_a_group_of_javas_that_begins_at_the_end_is_not_held_back_for_ever(
    files_kstore: KstoreBroker, protocol: str
) -> None:
    """It commits its positions in partitions that have retired without having read there."""
    topic = f"latest-{protocol}"
    settings = {"bootstrap.servers": files_kstore.bootstrap, "partitioner.class": "ordered"}
    with AdminClient(files_kstore.bootstrap) as admin, Producer(settings) as producer:
        admin.create_topics([NewTopic(topic, 2, 1, configs=ORDERED)])
        for key in KEYS:
            producer.send(topic, b"-1", key)
        producer.flush()
        admin.create_partitions(topic, 1, may_shrink=True)
        more = {"group.protocol": protocol, "auto.offset.reset": "latest"}
        reader = ConsoleConsumer(files_kstore, topic, "fresh", **more)

        def reads() -> bool:
            producer.send(topic, b"0", KEYS[0]).result()
            return bool(reader.rows)

        try:
            until(reads, "it reads what is new", pause_s=0.2)
        finally:
            reader.stop()
    assert {(row[0], row[2]) for row in reader.rows} == {(0, 0)}
