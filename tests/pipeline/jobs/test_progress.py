"""The progress line: it is shown on a terminal only, and removed however the work ends."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest

from kstore.pipeline.jobs.progress import Progress

SHOW_CURSOR = "\x1b[?25h"


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is_and_its_cursor_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with contextlib.suppress(ValueError), Progress("loading", 1000) as progress:
        progress.show(500, 12_345)
        raise ValueError("broken")
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    for part in ("loading", "50%", "12,345 records"):
        assert part in shown
    assert SHOW_CURSOR in shown


@pytest.mark.parametrize(("stderr", "quiet"), [(io.StringIO, False), (Terminal, True)])
def test_a_pipe_and_quiet_see_nothing(
    monkeypatch: pytest.MonkeyPatch, stderr: type[io.StringIO], quiet: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr())
    with Progress("loading", 1000, quiet) as progress:
        progress.show(500, 1)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
