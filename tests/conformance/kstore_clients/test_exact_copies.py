"""Unmodified clients, librdkafka's and Java's, on an exact copy: consumers of committed records see
the same as at the source, and after the switch transactional producers continue.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kstore.clients.replicator import ReplicationOptions, Replicator
from tests.beside.librdkafka import read_all
from tests.clients.replicator.sides import SETTINGS, Side
from tests.clients.replicator.sides import brokers as brokers  # fixtures
from tests.clients.replicator.sides import source as source
from tests.clients.replicator.sides import target as target
from tests.conformance.kafka_broker import run_tool
from tests.conformance.kstore_broker import KstoreBroker

COPIED = ["0-0", "0-1", "2-0", "2-1", "4-0", "4-1"]
"""The committed records that `fill` writes, in this order in either of two partitions."""


def librdkafka_producer(side: Side, **settings: Any) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0} | settings)


def fill(side: Side, topic: str, name: str, numbers: Iterable[int] = range(5)) -> None:
    """Transactions of librdkafka's, every second one aborted."""
    producer = librdkafka_producer(side, **{"transactional.id": name})
    producer.init_transactions(60)
    for number in numbers:
        producer.begin_transaction()
        for part in range(2):
            producer.produce(topic, f"{number}-{part}", partition=part)
        if number % 2:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def librdkafka_reads(side: Side, topic: str) -> list[tuple[int, int, str]]:
    """All committed records, as (partition, offset, value)."""
    found = read_all(side.bootstrap, topic, range(2), strict=True)
    return [(each.partition(), each.offset(), each.value().decode()) for each in found]


def java_reads(side: Side, topic: str, count: int) -> list[str]:
    """The console consumer's lines of that many committed records."""
    shown = [f"--formatter-property=print.{name}=true" for name in ("partition", "offset")]
    args = [
        "--bootstrap-server", side.bootstrap, "--topic", topic, "--from-beginning",
        "--isolation-level", "read_committed", "--max-messages", str(count),
        "--timeout-ms", "30000", *shown,
    ]  # fmt: skip
    return sorted(run_tool("kafka-console-consumer", args).stdout.splitlines())


def replicate(source: Side, target: Side, topic: str, *, switch: bool = False) -> None:
    made = Replicator(
        {"bootstrap.servers": source.bootstrap},
        {"bootstrap.servers": target.bootstrap},
        ReplicationOptions(re.compile(topic), groups=re.compile("moved"), exact=True),
    )
    asyncio.run(made.run(until_caught_up=not switch, switch=switch))


@pytest.mark.slow
def test_librdkafka_reads_and_writes_the_copy_in_the_sources_place(
    source: Side, target: Side
) -> None:
    source.create("rd", 2)
    fill(source, "rd", "t-rd")
    replicate(source, target, "rd")
    seen = librdkafka_reads(source, "rd")
    assert sorted(value for _, _, value in seen) == COPIED
    assert librdkafka_reads(target, "rd") == seen
    replicate(source, target, "rd", switch=True)
    fill(target, "rd", "t-rd", range(6, 9))
    after = librdkafka_reads(target, "rd")
    assert [row for row in after if row in seen] == seen
    assert sorted(row[2] for row in after if row not in seen) == ["6-0", "6-1", "8-0", "8-1"]


@pytest.mark.slow
def test_librdkafka_processes_the_copy_exactly_once_after_the_switch(
    source: Side, target: Side
) -> None:
    """Consume, transform, produce: the group's offsets have moved, and a transaction has them."""
    from confluent_kafka import Consumer

    source.create("eos", 2)
    fill(source, "eos", "t-eos")
    first = librdkafka_reads(source, "eos")
    half = [row for row in first if row[0] == 0]
    source.commit("eos", {0: half[1][1] + 1, 1: 0}, group_id="moved")
    replicate(source, target, "eos", switch=True)
    target.create("out", 2)
    settings = {
        "bootstrap.servers": target.bootstrap, "group.id": "moved", "enable.auto.commit": False,
        "isolation.level": "read_committed", "auto.offset.reset": "error",
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe(["eos"])
    producer = librdkafka_producer(target, **{"transactional.id": "t-out"})
    producer.init_transactions(60)
    wanted = len(first) - 2
    done = 0
    while done < wanted:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        producer.begin_transaction()
        producer.produce("out", message.value() + b"!", partition=message.partition())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        done += 1
    consumer.close()
    told = [f"{value}!" for _, _, value in first if (0, value) not in {(0, r[2]) for r in half[:2]}]
    assert sorted(value for _, _, value in librdkafka_reads(target, "out")) == sorted(told)


@pytest.mark.slow
def test_librdkafka_with_an_id_from_before_the_copy_is_refused_until_it_starts_again(
    tmp_path: Path, source: Side
) -> None:
    """Its id can be one of the source's: no record of it is taken for a duplicate."""
    with KstoreBroker(tmp_path / "target", overrides=SETTINGS) as broker:
        target = Side(broker)
        target.create("warm", 2)
        old = librdkafka_producer(target, **{"enable.idempotence": True})
        old.produce("warm", "a", partition=0)
        assert old.flush(60) == 0
        source.create("cold", 2)
        fill(source, "cold", "t-cold")
        replicate(source, target, "cold", switch=True)
        seen = librdkafka_reads(target, "cold")
        told: list[tuple[bool, bytes]] = []
        for number in range(3):
            old.produce(
                "cold", f"old-{number}", partition=0,
                on_delivery=lambda error, message: told.append((error is None, message.value())),
            )  # fmt: skip
            assert old.flush(60) == 0
        assert told == [(False, b"old-0"), (False, b"old-1"), (False, b"old-2")]
        assert librdkafka_reads(target, "cold") == seen
        again = librdkafka_producer(target, **{"enable.idempotence": True})
        again.produce("cold", "again", partition=0)
        assert again.flush(60) == 0
        assert [row[2] for row in librdkafka_reads(target, "cold") if row not in seen] == ["again"]
        target.sock.close()


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_jars")
def test_java_reads_and_writes_the_copy_in_the_sources_place(source: Side, target: Side) -> None:
    source.create("java", 2)
    fill(source, "java", "t-java")
    perf(source, 40)
    replicate(source, target, "java")
    seen = java_reads(source, "java", 46)
    assert java_reads(target, "java", 46) == seen
    assert len(seen) == 46
    replicate(source, target, "java", switch=True)
    perf(target, 60)
    after = java_reads(target, "java", 106)
    assert set(seen) < set(after)
    assert len(librdkafka_reads(target, "java")) == len(set(after)) == 106


def perf(side: Side, count: int) -> None:
    """Java's producer, in transactions of a few milliseconds."""
    args = [
        "--topic", "java", "--num-records", str(count), "--record-size", "10", "--throughput",
        "1000", "--bootstrap-server", side.bootstrap, "--transactional-id", "t-perf",
        "--transaction-duration-ms", "10",
    ]  # fmt: skip
    assert f"{count} records sent" in run_tool("kafka-producer-perf-test", args).stdout
