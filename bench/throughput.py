"""Broker CPU per GB while Kafka's own Java perf tools produce and consume 1 KB records, on
kstore and on Kafka in turns. The clients' CPU is not counted; the rate is theirs, and shown as a
note.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench.brokers import KAFKA, KSTORE, Broker, both, create_topic
from bench.measure import Settings, cpu_seconds
from bench.report import Row
from tests.conformance.kafka_broker import run_tool

__all__ = ["rows"]

RECORD_BYTES = 1000


def _produce(broker: Broker, topic: str, records: int) -> None:
    properties = [f"bootstrap.servers={broker.bootstrap}", "acks=all", "batch.size=131072"]
    args = ["--topic", topic, "--num-records", str(records), "--record-size", str(RECORD_BYTES)]
    args += ["--throughput", "-1", "--command-property", *properties, "linger.ms=5"]
    said = run_tool("kafka-producer-perf-test", args, timeout_s=600, heap="512M").stdout
    if f"{records} records sent" not in said:
        raise RuntimeError(f"kafka-producer-perf-test: {said[-500:]}")


def _consume(broker: Broker, topic: str, records: int) -> None:
    args = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    args += ["--num-records", str(records), "--timeout", "60000"]
    said = run_tool("kafka-consumer-perf-test", args, timeout_s=600, heap="512M").stdout
    if f", {records}," not in said.replace(".0000", ""):
        raise RuntimeError(f"kafka-consumer-perf-test did not read {records}: {said[-500:]}")


def _cpu(
    broker: Broker, work: Callable[[Broker, str, int], None], topic: str, records: int
) -> float:
    before = cpu_seconds(broker.pid)
    work(broker, topic, records)
    return (cpu_seconds(broker.pid) - before) / (records * RECORD_BYTES / 1e9)


def rows(settings: Settings) -> list[Row]:
    """One row for producing, one for consuming; nothing without Java."""
    records, rounds = settings.pick(1_000_000, 100_000), settings.pick(3, 1)
    produced: dict[str, list[float]] = {KSTORE: [], KAFKA: []}
    consumed: dict[str, list[float]] = {KSTORE: [], KAFKA: []}
    with both(settings.scratch) as running:
        if KAFKA not in running:
            return []
        for turn in range(rounds + 1):  # the first warms the JVM up
            for name, broker in running.items():
                topic = f"throughput-{turn}"
                create_topic(broker, topic, 4)
                wrote = _cpu(broker, _produce, topic, records)
                read = _cpu(broker, _consume, topic, records)
                if turn:
                    produced[name].append(wrote)
                    consumed[name].append(read)
    return [
        Row("throughput", case, statistics.median(used[KSTORE]), "CPU-s/GB", KAFKA,
            statistics.median(used[KAFKA]))
        for case, used in (("Java producer, 1 KB records", produced),
                           ("Java consumer, 1 KB records", consumed))
    ]  # fmt: skip
