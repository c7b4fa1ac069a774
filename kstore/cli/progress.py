"""The progress of a long command: a bar on a terminal (rich), lines now and then in a pipe, events
with --json. Also prints messages meanwhile.
"""

from __future__ import annotations

import json as json_text
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["FIRST_LINE_S", "HowFar", "Progress"]

FIRST_LINE_S = 4.0
LINES_S = 10.0
EVENTS_S = 0.9


@dataclass(frozen=True, slots=True)
class HowFar:
    """What is done and what is left, in a unit; `to_go` is None if unknown."""

    done: int
    to_go: int | None
    unit: str = "records"
    bytes: int | None = None
    more: str = ""
    """More for people to read."""

    def text(self, seconds: float) -> str:
        """One line, without the time left."""
        seconds = max(seconds, 1e-3)
        parts = [f"{self.done:,} {self.unit} ({self.done / seconds:,.0f}/s)"]
        if self.bytes is not None:
            parts.append(f"{self.bytes / 1e6:,.1f} MB ({self.bytes / 1e6 / seconds:,.1f} MB/s)")
        if self.to_go is not None:
            parts.append(f"{self.to_go:,} to go")
        return ", ".join([*parts, self.more] if self.more else parts)

    def seconds_left(self, seconds: float) -> float | None:
        """The time left at the average rate so far; None if unknown."""
        if self.to_go is None or not self.done:
            return None
        return self.to_go * seconds / self.done


class Progress:
    """Reports of one command while it runs. Times count from its creation. There is one event per
    second, and none before `first_event_s`.
    """

    def __init__(self, as_json: bool, first_event_s: float = 0.0) -> None:
        self.as_json = as_json
        self._began = time.monotonic()
        self._next_line = FIRST_LINE_S
        self._next_event = first_event_s
        self._bar: Bar | None = None

    @property
    def seconds(self) -> float:
        """Seconds since its creation."""
        return time.monotonic() - self._began

    def print(self, text: str) -> None:
        """Print a line for people, on stderr."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Print a line of JSON, on stdout."""
        print(json_text.dumps({"event": kind} | dict(data)), flush=True)

    def show(self, how_far: HowFar, data: Mapping[str, Any]) -> None:
        """Report the progress; `data` is what an event has in addition to the times."""
        seconds = self.seconds
        left = how_far.seconds_left(seconds)
        if self.as_json:
            if seconds < self._next_event:
                return
            self._next_event = seconds + EVENTS_S
            times = {"seconds": round(seconds, 3)}
            if left is not None:
                times["seconds_left"] = round(left, 1)
            self.event("progress", times | dict(data))
        elif sys.stderr.isatty():
            self._show_bar(how_far, seconds)
        elif seconds >= self._next_line:
            self._next_line = seconds + LINES_S
            rest = "" if left is None else f", {left:,.0f} s left"
            self.print(how_far.text(seconds) + rest)

    def _show_bar(self, how_far: HowFar, seconds: float) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                BarColumn(bar_width=20), TextColumn("{task.description}", markup=False),
                TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.add_task("", total=None)
            self._bar.start()
        total = None if how_far.to_go is None else how_far.done + how_far.to_go
        task = self._bar.task_ids[0]
        text = how_far.text(seconds)
        self._bar.update(task, description=text, completed=how_far.done, total=total)

    def end(self) -> None:
        """Remove the bar before the result is printed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
