"""The lock of who changes which segments a log has, apart from rolling. What a failing disk has
left undone of that is done first: nothing else may touch those segments before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from kstore.log.errors import LogClosedError

__all__ = ["SwapLock", "UnfinishedSwap"]


class UnfinishedSwap(Protocol):
    """A cleaned segment that has not taken the place of others yet."""

    bases: frozenset[int]
    """The base offsets of the others: the index has nothing of them meanwhile."""

    def settle(self) -> None:
        """Finish it or take it back. The lock is held; raises OSError where neither can be done."""


class SwapLock:
    """A lock, taken before the core's. It may be held while the disk is waited for; the core's may
    not, since appends wait for it.

    Closing or deleting a log waits for it, in a broker's event loop too, so nobody may keep it for
    long. Raises LogClosedError for a closed log, whose folder may be another log's by then.
    """

    def __init__(self) -> None:
        self.plain = threading.Lock()
        """The lock without the settling, for what changes no segment."""
        self._closed_error: Callable[[], Exception] | None = None
        self.unfinished: UnfinishedSwap | None = None
        """What is settled by who takes the lock next. It is set and cleared by who holds it."""

    @property
    def without_index(self) -> frozenset[int]:
        """The segments of which the index must not have anything now."""
        unfinished = self.unfinished
        return frozenset() if unfinished is None else unfinished.bases

    def end(self, closed_error: Callable[[], Exception]) -> None:
        """The log is closed: its segments do not change any more, and what is unfinished is left to
        the next start. ``plain`` is held.
        """
        self._closed_error = closed_error
        self.unfinished = None

    def try_to_settle(self) -> None:
        """Settle what is unfinished, if that can be done now."""
        if self.unfinished is not None:
            with suppress(OSError, LogClosedError), self:
                pass

    def __enter__(self) -> SwapLock:
        self.plain.acquire()
        try:
            if self._closed_error is not None:
                raise self._closed_error()
            if self.unfinished is not None:
                self.unfinished.settle()
        except BaseException:
            self.plain.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.plain.release()
