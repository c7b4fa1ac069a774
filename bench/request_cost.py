"""Broker CPU per request: small produce requests on 16 connections and pipelined on 64, and 1 KB
fetches. CPU is the broker process's user and system time over the answers counted, less what it
uses idle; both brokers in turns in one run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench import frames
from bench.brokers import KAFKA, KSTORE, Broker, both, create_topic
from bench.load import Load
from bench.measure import Settings, cpu_seconds, in_turns
from bench.report import Goal, Row

__all__ = ["rows"]

TOPIC = "cost"
PARTITIONS = 16
PIPELINE_DEPTH = 16


def _produce_load(broker: Broker, connections: int, depth: int) -> Load:
    batch = frames.record_batch([random.Random(1).randbytes(100)])

    def check(answer: bytes) -> None:
        code = frames.produce_error(answer, TOPIC)
        if code:
            raise RuntimeError(f"produce answered with error {code}")

    requests = [frames.produce(TOPIC, i % PARTITIONS, batch) for i in range(connections)]
    return Load((broker.host, broker.port), requests, check, depth=depth)


def _fetch_load(broker: Broker, connections: int, depth: int) -> Load:
    batch = frames.record_batch([random.Random(2).randbytes(1024)])
    topic = f"{TOPIC}-fetch"

    def stored(answer: bytes) -> None:
        code = frames.produce_error(answer, topic)
        if code:
            raise RuntimeError(f"produce answered with error {code}")

    def check(answer: bytes) -> None:
        if not frames.fetched_batch(answer, batch):
            raise RuntimeError("a fetch was not answered with the batch that was stored")

    fill = [frames.produce(topic, p, batch) for p in range(PARTITIONS)]
    address = (broker.host, broker.port)
    with Load(address, fill, stored) as filling:
        filling.run(60, at_most=PARTITIONS * 200)
    requests = [
        frames.fetch(topic, i % PARTITIONS, 100 + i, max_bytes=1024) for i in range(connections)
    ]
    return Load(address, requests, check, depth=depth)


def _idle_share(broker: Broker, seconds: float) -> float:
    before = cpu_seconds(broker.pid)
    time.sleep(seconds)
    return (cpu_seconds(broker.pid) - before) / seconds


def _cost_us(broker: Broker, load: Load, seconds: float, idle: float) -> float:
    before = cpu_seconds(broker.pid)
    answers, elapsed = load.run(seconds)
    used = cpu_seconds(broker.pid) - before - idle * elapsed
    return used / answers * 1e6


_CASES: list[tuple[str, Callable[[Broker, int, int], Load], int, int, Goal]] = [
    ("produce 100 B, 16 connections", _produce_load, 16, 1, Goal(1 / 3, at_least=False)),
    ("produce 100 B, 64 connections pipelined", _produce_load, 64, PIPELINE_DEPTH,
     Goal(1 / 5, at_least=False)),
    ("fetch 1 KB, 16 connections", _fetch_load, 16, 1, Goal(1 / 4, at_least=False)),
    ("fetch 1 KB, 64 connections pipelined", _fetch_load, 64, PIPELINE_DEPTH,
     Goal(1 / 4, at_least=False)),
]  # fmt: skip


def _measure(
    running: dict[str, Broker], loads: dict[str, Load], settings: Settings
) -> dict[str, float]:
    seconds = settings.pick(4, 1)
    for name, load in loads.items():
        load.run(settings.pick(20, 8) if name == KAFKA else 1)  # the JVM compiles as it runs
    idle = {name: _idle_share(broker, 1.0) for name, broker in running.items()}

    def case(name: str) -> Callable[[], float]:
        return lambda: _cost_us(running[name], loads[name], seconds, idle[name])

    return in_turns({name: case(name) for name in running}, settings.pick(5, 2))


def rows(settings: Settings) -> list[Row]:
    """One row per kind of request."""
    made = []
    with both(settings.scratch) as running:
        for broker in running.values():
            create_topic(broker, TOPIC, PARTITIONS)
            create_topic(broker, f"{TOPIC}-fetch", PARTITIONS)
        time.sleep(1)
        for case, kind, connections, depth, goal in _CASES:
            with ExitStack() as stack:
                loads = {
                    name: stack.enter_context(kind(broker, connections, depth))
                    for name, broker in running.items()
                }
                cost = _measure(running, loads, settings)
            unit = "us CPU/request"
            made.append(Row("request_cost", case, cost[KSTORE], unit, KAFKA, cost.get(KAFKA), goal))
    return made
