"""Limits the log lines that clients can cause. In each window of time it admits the first few lines
of each group, up to a total limit, and at the end of the window it reports how many more there
were. All lines that clients, also unauthenticated ones, can cause as often as they like pass
through it.
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
    """Reports a sentence to the operator. ``about``: the number of lines with the same value is
    limited. It is set for lines that clients can cause as often as they like.
    """

    def __call__(self, sentence: str, about: str = "") -> None:
        """Report it, or count it."""
        ...


def group_of(text: str) -> str:
    """The common part of lines that differ only in numbers and quoted names."""
    return _VARIES.sub("#", text[: 2 * MAX_GROUP_CHARS])[:MAX_GROUP_CHARS]


class LogLimit:
    """Decides which lines are written. ``report_rest`` is called at the end of a window for each
    group with suppressed lines, with their number. The group "" counts the lines beyond the total
    limit.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report_rest: Callable[[str, int], None],
        *,
        of_group: int,
        of_all: int,
    ) -> None:
        self._loop = loop
        self._report_rest = report_rest
        self._of_group = of_group
        self._of_all = of_all
        self._admitted: dict[str, list[Hashable]] = {}
        """The counts of this window, by group."""
        self._total = 0
        self._suppressed: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, group: str, kind: Hashable = None) -> bool:
        """Whether to write a line of a group; if not, it is counted. A ``kind`` is written once in
        a window; lines without one are all different.
        """
        admitted = self._admitted.get(group)
        if admitted is not None and (
            len(admitted) >= self._of_group or (kind is not None and kind in admitted)
        ):
            self._suppressed[group] = self._suppressed.get(group, 0) + 1
            return False
        if self._total >= self._of_all:
            self._suppressed[""] = self._suppressed.get("", 0) + 1
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(WINDOW_S, self.end_window)
        self._total += 1
        self._admitted.setdefault(group, []).append(kind)
        return True

    def end_window(self) -> None:
        """Report the number of suppressed lines, and begin a new window."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        suppressed = self._suppressed
        self._admitted, self._suppressed, self._total = {}, {}, 0
        for group in sorted(suppressed, key=lambda each: (not each, each)):
            self._report_rest(group, suppressed[group])
