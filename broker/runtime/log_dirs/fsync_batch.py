"""Responses that wait for the disk (kstore.flush.policy=always). Those that wait at the same time
share one flush per log.

The loop collects them and one thread flushes; meanwhile the loop collects the next ones. This file
does not know what the responses contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kstore.log import Log

__all__ = ["FsyncBatcher"]

Done = Callable[[bool], object]


class FsyncBatcher:
    """Calls back, on the loop, once records are on the disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None]) -> None:
        self._loop = loop
        self._report = report
        self._offsets: dict[Log, int] = {}
        self._waiting: list[Done] = []
        self._busy = False
        self._thread: ThreadPoolExecutor | None = None

    def wait(self, appended: Iterable[tuple[Log, int]], done: Done) -> None:
        """Call ``done(True)`` when each log is on the disk up to its offset, or ``done(False)`` if
        a flush fails.
        """
        for log, end_offset in appended:
            self._offsets[log] = max(end_offset, self._offsets.get(log, 0))
        self._waiting.append(done)
        if not self._busy:
            self._busy = True
            # Other appends in this turn of the loop share the flush.
            self._loop.call_soon(self._flush)

    def sync(self, appended: Iterable[tuple[Log, int]]) -> None:
        """Flush the logs soon, for readers; no answer waits for it."""
        self.wait(appended, lambda done: None)

    def close(self) -> None:
        """Wait for the current flush."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _flush(self) -> None:
        offsets, self._offsets = self._offsets, {}
        waiting, self._waiting = self._waiting, []
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="kstore-flush")
        flushed = self._thread.submit(_sync, offsets)
        flushed.add_done_callback(
            lambda result: self._loop.call_soon_threadsafe(self._flushed, result, waiting)
        )

    def _flushed(self, result: Future[None], waiting: list[Done]) -> None:
        problem = result.exception()
        if problem is not None:
            self._report(f"records can't be forced to disk: {problem}")
        if self._waiting:
            self._flush()
        else:
            self._busy = False
        for done in waiting:
            done(problem is None)


def _sync(offsets: dict[Log, int]) -> None:
    for log, end_offset in offsets.items():
        try:
            log.sync_until(end_offset)
        except OSError as problem:
            log.log_dir.note_error(problem)
            raise
