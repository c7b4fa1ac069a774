"""`broker`: a real `kstore serve` on its own port, stopped at the end of the test. `running`: one
for all tests of a file. Both use the SETTINGS of the file, if it has any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.kstore_broker import KstoreBroker


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., KstoreBroker]]:
    """Start brokers with given settings: ``start_broker({"num.partitions": "3"})``."""
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
def broker(
    request: pytest.FixtureRequest, start_broker: Callable[..., KstoreBroker]
) -> KstoreBroker:
    """For one test, which may kill it."""
    return start_broker(getattr(request.module, "SETTINGS", None))


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KstoreBroker]:
    """For all tests of a file. Each test uses its own topics and groups."""
    settings = getattr(request.module, "SETTINGS", None)
    with KstoreBroker(tmp_path_factory.mktemp("broker"), overrides=settings) as broker:
        yield broker
