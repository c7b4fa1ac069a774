"""A command in the test's process prints what it would print in its own process."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tests.cli import shell
from tests.cli.shell import run_here


def test_what_is_logged_is_on_stderr_and_a_traceback_there_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def main(arguments: Sequence[str]) -> int:
        try:
            return int(arguments[0])
        except ValueError:
            logging.getLogger("asyncio").exception("a task has failed")
            return 3
        finally:
            logging.getLogger("asyncio").warning("a task has ended")

    monkeypatch.setattr(shell, "main", main)
    assert run_here("7") == (7, b"", b"a task has ended\n")
    with pytest.raises(AssertionError, match="a task has failed\nTraceback"):
        run_here("x")
