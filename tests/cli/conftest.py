"""`kstore`: the shell of one test, on the broker of its file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.shell import Shell
from tests.conformance.kstore_broker import KstoreBroker


@pytest.fixture
def kstore(broker: KstoreBroker) -> Iterator[Shell]:
    """What it started is ended with the test."""
    shell = Shell(broker.bootstrap)
    yield shell
    shell.kill_rest()
