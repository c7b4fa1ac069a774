"""Startup and idle memory: seconds from exec to the first answered request, and the memory of a new
process that has answered requests and stored ten records. It starts separate brokers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import brokers, frames
from bench.brokers import Broker, create_topic, exchange_once
from bench.compare.pair import LESS, Pair, compared
from bench.measure import Figures, Settings, memory_mb, take_turns
from bench.report import Goal, Row

__all__ = ["rows"]

TOPIC = "startup"


def _start(broker: Broker) -> Figures:
    try:
        return {"seconds": broker.start()}
    finally:
        broker.stop()


def _memory(broker: Broker) -> Figures:
    try:
        broker.start()
        create_topic(broker, TOPIC, 1)
        batch = frames.record_batch([b"x" * 100])
        for _ in range(10):
            answer = exchange_once(broker, frames.produce(TOPIC, 0, batch))
            if code := frames.produce_error(answer, TOPIC):
                raise RuntimeError(f"produce answered with error {code}")
        time.sleep(1)
        return memory_mb(broker.pid)
    finally:
        broker.stop()


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """One row for the time, two for the memory."""
    del pair
    ours = brokers.make(settings.scratch / "startup", settings)
    for broker in ours.values():
        _start(broker)  # creates its files, and fills the page cache
    starts = {name: lambda b=broker: _start(b) for name, broker in ours.items()}
    sides = take_turns("start-up", starts, settings.pick(5, 2))
    goal = Goal(0.2, at_least=False, of="value")
    yield compared("startup", "exec to the first answer", sides, "seconds", "s", goal)

    used = {name: lambda b=broker: _memory(b) for name, broker in ours.items()}
    sides = take_turns("idle memory", used, 1)
    goal = Goal(50, at_least=False, of="value")
    yield compared("startup", "idle memory, resident (RSS)", sides, "Rss", "MB", goal)
    yield compared("startup", "idle memory, shared in part (PSS)", sides, "Pss", "MB", LESS)
