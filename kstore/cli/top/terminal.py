"""The live screen of a terminal: draws with rich, and reads keys."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kstore.cli.top.http_pages import HttpPageError
from kstore.cli.top.sample import Sample, rows_between
from kstore.cli.top.screen import KEYS, Order, screen_lines
from kstore.errors import KafkaError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["watch"]

POLL_S = 0.1
STYLES = {"": "", "title": "bold", "header": "reverse", "bad": "bold red", "warn": "yellow"}
PAUSED = "paused: p continues"
FIRST = "kstore top: waiting for two samples..."


class _Screen:
    """What rich draws: always as wide and high as the terminal."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.rows: Mapping[str, Any] | None = None
        self.note = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        if self.rows is None:
            yield Text(self.note or FIRST, no_wrap=True)
            return
        height = options.height or console.height
        for line in screen_lines(self.rows, self.order, options.max_width, height, note=self.note):
            yield Text(line.text, style=STYLES[line.style], no_wrap=True, overflow="crop")


def watch(take: Callable[[], Sample], interval_s: float, order: Order, count: int | None) -> None:
    """Draw a sample per interval, until q or Ctrl-C, or for so many samples.

    Raises the error of the first sample; shows a later one until a sample succeeds.
    """
    from rich.console import Console
    from rich.live import Live

    screen = _Screen(order)
    console = Console()
    with (
        _keys() as pressed,
        ThreadPoolExecutor(1) as pool,
        Live(screen, console=console, screen=True, auto_refresh=False) as live,
    ):
        before: Sample | None = None
        pending: Future[Sample] | None = pool.submit(take)
        due_s = time.monotonic() + interval_s
        size = console.size
        while count is None or count > 0:
            key = pressed(POLL_S)
            paused = screen.note == PAUSED
            if key == "q":
                return
            if key == "p":
                screen.note = "" if paused else PAUSED
            elif key in KEYS:
                order.choose(KEYS[key])
            changed = bool(key) or console.size != size
            size = console.size
            if pending is not None and pending.done():
                after = _result(pending, screen, first=before is None)
                if after is not None and before is not None and not paused:
                    screen.rows, changed = rows_between(before, after), True
                    count = None if count is None else count - 1
                before, pending = after or before, None
                changed = changed or bool(screen.note)
            if pending is None and time.monotonic() >= due_s:
                pending, due_s = pool.submit(take), time.monotonic() + interval_s
            if changed:
                live.refresh()


def _result(pending: Future[Sample], screen: _Screen, *, first: bool) -> Sample | None:
    """The sample; None if it failed, and the screen shows why."""
    try:
        found = pending.result()
    except (KafkaError, HttpPageError, OSError) as problem:
        if first:
            raise
        screen.note = str(problem)
        return None
    if screen.note != PAUSED:
        screen.note = ""
    return found


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key; "" for none. If stdin is not a terminal it
    only waits.
    """
    if not sys.stdin.isatty():

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        found = os.read(descriptor, 64) if ready else None
        if found == b"":
            return "q"  # the terminal has closed
        return "" if found is None else found[:1].decode("ascii", "replace")

    try:
        tty.setcbreak(descriptor)
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
