"""Reports on stderr what a command waits for, after some seconds."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["WAIT_S", "telling_waits", "waiting_for"]

WAIT_S = 3.0
_log = logging.getLogger("kstore.clients.waiting")


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """One line about what a client waits for."""
        self._tell(record.getMessage())


def _on_stderr(text: str) -> None:
    print(f"kstore: {text}", file=sys.stderr, flush=True)


@contextmanager
def telling_waits(tell: Callable[[str], object] = _on_stderr) -> Iterator[None]:
    """In this context, what the clients wait for is reported to `tell`. An inner context replaces
    `tell`.
    """
    handler, before, level = _Teller(tell), list(_log.handlers), _log.level
    _log.handlers[:] = [handler]
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.handlers[:] = before
        _log.setLevel(level)


@contextmanager
def waiting_for(what: str, tell: Callable[[str], object] = _on_stderr) -> Iterator[None]:
    """Report once, after WAIT_S seconds in this context, that the command waits for `what`."""
    timer = threading.Timer(WAIT_S, tell, [f"waiting for {what}"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
