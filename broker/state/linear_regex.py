"""Regular expressions that come from clients: RE2's syntax, whole matches, and a time that grows
with the expression's size times the text's, whatever the two are.

RE2 itself does the work. Python's own engine goes back on its steps: one expression could keep the
broker busy for hours, so nothing that a client sent ever reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["LinearRegex", "regex_error"]

MAX_STEPS = 4096
"""Of an expression's program: some 100 names of topics joined by |, or ``.{400}``."""
MAX_MEMORY = 512 * 1024
"""Bytes that one expression may use: RE2 forgets and begins anew where matching needs more."""
MAX_TOLD = 100
"""Characters of a complaint: RE2 repeats the expression in it."""


def regex_error(text: str) -> str | None:
    """What is wrong with an expression, in RE2's words, or None."""
    return LinearRegex(text).problem


class LinearRegex:
    """An expression, ready to match whole texts. An invalid one matches nothing."""

    def __init__(self, text: str) -> None:
        import re2  # takes 15 ms and 4 MB: where nobody sends an expression, nobody pays them

        self.problem: str | None = None
        """What is wrong with the expression, in RE2's words."""
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
            self.problem = error.args[0].decode("utf-8", "replace")[:MAX_TOLD]
        except UnicodeEncodeError:
            self.problem = "invalid UTF-8"
        re2.purge()  # it would keep 128 expressions of clients, with the memory of each

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        if self._compiled is None:
            return False
        return self._compiled.fullmatch(text.encode("utf-8", "replace")) is not None

    def filter(self, texts: Iterable[str]) -> frozenset[str]:
        """The texts that match."""
        return frozenset(text for text in texts if self.matches(text))

    def cost(self, text: str) -> int:
        """Steps that a match of this text takes at most; a step is some 10 ns."""
        return self._steps * (len(text) + 1)
