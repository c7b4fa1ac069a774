"""The lock for changes to a log's list of segments, except rolling. Acquiring it first completes a
swap that a disk failure interrupted, before anything else changes those segments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from kstore.log.errors import LogClosedError

__all__ = ["SwapLock", "UnfinishedSwap"]


class UnfinishedSwap(Protocol):
    """A cleaned segment that has not replaced the old segments yet."""

    bases: frozenset[int]
    """The base offsets of the old segments. The index has no data of them meanwhile."""

    def settle(self) -> None:
        """Finish or undo it. The lock must be held. Raises OSError if the disk still fails."""


class SwapLock:
    """A lock that is acquired before the core's lock. It may be held during disk I/O; the core's
    lock may not, because appends wait for it.

    Closing or deleting a log waits for this lock, also in a broker's event loop, so it must not be
    held for long. Acquiring it for a closed log raises LogClosedError, because the folder may
    belong to another log by then.
    """

    def __init__(self) -> None:
        self.plain = threading.Lock()
        """The same lock without settling, for code that does not change segments."""
        self._closed_error: Callable[[], Exception] | None = None
        self.unfinished: UnfinishedSwap | None = None
        """The swap that the next holder settles. It changes only with the lock held."""

    @property
    def without_index(self) -> frozenset[int]:
        """The base offsets of segments that the index must not contain now."""
        unfinished = self.unfinished
        return frozenset() if unfinished is None else unfinished.bases

    def end(self, closed_error: Callable[[], Exception]) -> None:
        """Note that the log is closed: its segments do not change any more, and the next start
        settles an unfinished swap. ``plain`` must be held.
        """
        self._closed_error = closed_error
        self.unfinished = None

    def try_to_settle(self) -> None:
        """Settle the unfinished swap, if that is possible now."""
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
