"""Limits the log lines that others can cause: in each window of time the first few of a group, a
number in all, and at its end how many more there were. All lines that clients or strangers can
cause as often as they like pass through it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["WINDOW_S", "LogLimit", "Report", "group_of"]

WINDOW_S = 10.0
MAX_GROUP_CHARS = 100
_VARIES = re.compile(r"""\d+|'[^']*'|"[^"]*\"""")


class Report(Protocol):
    """Reports a sentence to the operator. ``about``: lines that others can cause as often as they
    like have the same value, and their number is limited.
    """

    def __call__(self, sentence: str, about: str = "") -> None:
        """Report it, or count it."""
        ...


def group_of(text: str) -> str:
    """The common part of lines that differ only in numbers and quoted names."""
    return _VARIES.sub("#", text[: 2 * MAX_GROUP_CHARS])[:MAX_GROUP_CHARS]


class LogLimit:
    """Decides which lines are written. ``tell_rest`` is called at the end of a window for each
    group of which there were more, with their number; the group "" has the lines beyond the total
    limit.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tell_rest: Callable[[str, int], None],
        *,
        of_group: int,
        of_all: int,
    ) -> None:
        self._loop = loop
        self._tell_rest = tell_rest
        self._of_group = of_group
        self._of_all = of_all
        self._told: dict[str, list[Hashable]] = {}
        """The counts of this window, by group."""
        self._total = 0
        self._untold: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, group: str, kind: Hashable = None) -> bool:
        """Whether to write a line of a group; if not, it is counted. A ``kind`` is written once in
        a window; lines without one are all different.
        """
        told = self._told.get(group)
        if told is not None and (
            len(told) >= self._of_group or (kind is not None and kind in told)
        ):
            self._untold[group] = self._untold.get(group, 0) + 1
            return False
        if self._total >= self._of_all:
            self._untold[""] = self._untold.get("", 0) + 1
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(WINDOW_S, self.end_window)
        self._total += 1
        self._told.setdefault(group, []).append(kind)
        return True

    def end_window(self) -> None:
        """Report the number of suppressed lines, and begin a new window."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        untold = self._untold
        self._told, self._untold, self._total = {}, {}, 0
        for group in sorted(untold, key=lambda each: (not each, each)):
            self._tell_rest(group, untold[group])
