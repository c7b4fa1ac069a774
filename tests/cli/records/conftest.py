"""What the tests of commands on records share: a broker for each file, a shell for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.shell import Shell
from tests.conformance.kstore_broker import KstoreBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    """One broker for a file: each test uses topics of its own."""
    with KstoreBroker(tmp_path_factory.mktemp("records")) as running:
        yield running


@pytest.fixture
def kstore(broker: KstoreBroker) -> Iterator[Shell]:
    """The shell of one test."""
    shell = Shell(broker.bootstrap)
    yield shell
    shell.kill_rest()
