"""Regular expressions from clients, with RE2's syntax. They match whole texts, in a time that is
linear in the size of the expression times the size of the text.

RE2 does the matching. Python's engine backtracks, so one expression of a client could keep the
broker busy for hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["LinearRegex", "regex_error"]

MAX_STEPS = 4096
"""The limit for an expression's program: about 100 topic names joined by |, or ``.{400}``."""
MAX_MEMORY = 512 * 1024
"""The memory limit of one expression in bytes. If matching needs more, RE2 clears its cache and
continues.
"""
MAX_MESSAGE_CHARS = 100
"""The limit of an error's text, since RE2 quotes the expression in it."""


def regex_error(text: str) -> str | None:
    """RE2's error for an expression, or None."""
    return LinearRegex(text).problem


class LinearRegex:
    """An expression, ready to match whole texts. An invalid one matches nothing."""

    def __init__(self, text: str) -> None:
        import re2  # imported late, since it takes 15 ms and 4 MB

        self.problem: str | None = None
        """RE2's error for the expression, or None."""
        self._compiled: Any = None
        self._steps = 0
        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.never_capture = True
        options.log_errors = False
        try:
            compiled = re2.compile(text.encode(), options)
            self._steps = compiled.programsize
            if self._steps <= MAX_STEPS:
                self._compiled = compiled
            else:
                self.problem = (
                    f"pattern too large: {self._steps} steps, at most {MAX_STEPS} are allowed"
                )
        except re2.error as error:
            self.problem = error.args[0].decode("utf-8", "replace")[:MAX_MESSAGE_CHARS]
        except UnicodeEncodeError:
            self.problem = "invalid UTF-8"
        re2.purge()  # its cache would hold 128 expressions of clients

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        if self._compiled is None:
            return False
        return self._compiled.fullmatch(text.encode("utf-8", "replace")) is not None

    def filter(self, texts: Iterable[str]) -> frozenset[str]:
        """The texts that match."""
        return frozenset(text for text in texts if self.matches(text))

    def cost(self, text: str) -> int:
        """The largest number of steps of a match with this text. A step takes about 10 ns."""
        return self._steps * (len(text) + 1)
