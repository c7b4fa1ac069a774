"""`kstore`: the shell of one test, with the broker of its file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.shell import Shell
from tests.conformance.kstore_broker import KstoreBroker


@pytest.fixture
def kstore(broker: KstoreBroker) -> Iterator[Shell]:
    """Processes that it started are stopped at the end of the test."""
    shell = Shell(broker.bootstrap)
    yield shell
    shell.kill_rest()
