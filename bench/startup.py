"""Start-up and memory of a broker: seconds from exec to the first answered request, and the memory
of the process once it has answered and taken a first record.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.brokers import KAFKA, KSTORE, Broker, create_topic, kafka_or_none
from bench.measure import Settings, in_turns, memory_mb
from bench.report import Goal, Row
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.python_clients import ConfluentClient
from tests.conformance.samples import samples

__all__ = ["rows"]


def _start(broker: Broker) -> float:
    seconds = broker.start()
    broker.stop()
    return seconds


def _memory(broker: Broker, folder: Path) -> dict[str, float]:
    broker.start()
    try:
        create_topic(broker, "memory", 1)
        ConfluentClient(broker.bootstrap).send("memory", samples(10))
        time.sleep(1)
        return memory_mb(broker.pid)
    finally:
        broker.stop()


def rows(settings: Settings) -> list[Row]:
    """Start-up and memory rows."""
    # As a user's Python does it: the first start leaves byte code for the next ones.
    environment = {"PYTHONDONTWRITEBYTECODE": ""}
    kstore = KstoreBroker(settings.scratch / "kstore", environment=environment)
    brokers: dict[str, Broker] = {KSTORE: kstore}
    peer = kafka_or_none(settings.scratch / "kafka")
    if peer is not None:
        brokers[KAFKA] = peer
    for broker in brokers.values():
        _start(broker)  # formats, and warms the page cache
    seconds = in_turns(
        {name: lambda broker=broker: _start(broker) for name, broker in brokers.items()},  # type: ignore[misc]
        settings.pick(5, 2),
    )
    memory = {name: _memory(broker, settings.scratch) for name, broker in brokers.items()}
    peer_memory = memory.get(KAFKA, {})
    return [
        Row(
            "startup", "exec to the first answer", seconds[KSTORE], "s", KAFKA, seconds.get(KAFKA),
            Goal(0.2, at_least=False, of="value"),
        ),
        Row(
            "startup", "memory, resident (RSS)", memory[KSTORE]["Rss"], "MB", KAFKA,
            peer_memory.get("Rss"), Goal(50, at_least=False, of="value"),
        ),
        Row(
            "startup", "memory, shared in part (PSS)", memory[KSTORE]["Pss"], "MB", KAFKA,
            peer_memory.get("Pss"),
        ),
    ]  # fmt: skip
