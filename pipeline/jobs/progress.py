"""A line of progress on stderr while a file is loaded, by rich; nothing if stderr is not a
terminal.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["Progress"]

_INTERVAL_S = 0.2


class Progress:
    """The progress of a pass over ``total_bytes``; silent if quiet. Use it in a with block."""

    def __init__(self, name: str, total_bytes: int, quiet: bool = False) -> None:
        self._bar: Bar | None = None
        self._next = 0.0
        if quiet or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[count]:,} records"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(name, total=max(total_bytes, 1), count=0)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, size_bytes: int, count: int) -> None:
        """Report how many bytes and records are done; cheap enough to call for each record."""
        if self._bar is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_S
        self._bar.update(self._task, completed=size_bytes, count=count)
