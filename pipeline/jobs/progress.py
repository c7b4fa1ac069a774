"""One line of progress on stderr, rewritten in place on a terminal and left out elsewhere."""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]

_INTERVAL_S = 0.2


class Progress:
    """How far a pass over ``total_bytes`` has come; silent when quiet or when stderr is no
    terminal.
    """

    def __init__(self, name: str, total_bytes: int, quiet: bool = False) -> None:
        self._name = name
        self._total = max(total_bytes, 1)
        self._shown = sys.stderr.isatty() and not quiet
        self._began = time.monotonic()
        self._next = self._began

    def show(self, size_bytes: int, count: int) -> None:
        """Say how many bytes and records are done; cheap enough to call for each record."""
        if not self._shown:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL_S
        share = min(size_bytes / self._total, 1.0)
        rate = count / max(now - self._began, 1e-9)
        line = f"{self._name} {share:4.0%}  {count:,} records  {rate:,.0f}/s"
        print(f"\r{line:<70}", end="", file=sys.stderr, flush=True)

    def done(self, count: int) -> None:
        """Take the line away."""
        if self._shown:
            print(f"\r{'':<70}\r", end="", file=sys.stderr, flush=True)
