"""Modules that a broker does not load when it starts: they cost memory and time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.kstore_broker import KstoreBroker
from tests.test_rooms import HEAVY

pytestmark = pytest.mark.slow

LATER = {
    "encodings.idna", "unicodedata",  # for names of hosts that are not ASCII
    "kstore._fast.record.batch_view", "kstore._fast.record.columns", "kstore._fast.record.records",
    "kstore.broker.api.metadata.metadata", "kstore.protocol.metadata.metadata",
}  # fmt: skip


def test_a_start_loads_only_what_a_plain_broker_needs(tmp_path: Path) -> None:
    """Python reports each module that it loads, with a line that starts with this text."""
    broker = KstoreBroker(tmp_path, environment={"PYTHONPROFILEIMPORTTIME": "1"})
    try:
        broker.start()
        loaded = modules_of(broker)
    finally:
        broker.stop()
    assert {"kstore.broker.app", "uvloop"} <= loaded
    assert not loaded & (HEAVY | LATER)


def modules_of(broker: KstoreBroker) -> set[str]:
    """The modules that a broker has loaded so far."""
    lines = (broker.folder / broker.OUTPUT).read_text().splitlines()
    return {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}
