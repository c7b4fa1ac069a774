"""`broker`: a real `kstore serve` on a port of its own, stopped at the end of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.kstore_broker import KstoreBroker


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., KstoreBroker]]:
    """Start brokers with settings of their own: ``start_broker({"num.partitions": "3"})``."""
    started: list[KstoreBroker] = []

    def start(overrides: dict[str, str] | None = None, name: str = "broker") -> KstoreBroker:
        broker = KstoreBroker(tmp_path / name, overrides=overrides)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def broker(start_broker: Callable[..., KstoreBroker]) -> KstoreBroker:
    """A broker with default settings."""
    return start_broker()
