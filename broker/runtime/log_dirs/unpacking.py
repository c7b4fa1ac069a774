"""A thread that decompresses batches, so that the loop does not: compressed batches before they are
appended, and large batches for ListOffsets by timestamp.

It takes one batch of each connection in turn, so that many large batches of one client do not delay
other clients. kstore/_fast/record/unpack.pyx checks a batch; produce_later.pyx selects batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from kstore._fast.record.unpack import look_into

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection

__all__ = ["Job", "Unpacking"]

T = TypeVar("T")
Job = tuple[int, bytes, int, int, int]
"""The index of a batch in its request, the batch, and the other arguments of look_into."""


class Unpacking:
    """The unpacking thread of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None]) -> None:
        self._loop = loop
        self._report = report
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kstore-unpack")

    def close(self) -> None:
        """Stop: batches that have not begun are dropped."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def look(self, find: Callable[[], T]) -> Awaitable[T]:
        """Check a stored batch in its turn. Returns an awaitable of the result."""
        return self._loop.run_in_executor(self._thread, find)

    def ask(self, connection: Connection, jobs: list[Job]) -> None:
        """Check batches and give the results to the connection, which then handles its request
        again.
        """
        self._begin(connection, deque(jobs))

    def _begin(self, connection: Connection, jobs: deque[Job]) -> None:
        place, batch, max_bytes, codec, level = jobs.popleft()
        future = self._loop.run_in_executor(self._thread, look_into, batch, max_bytes, codec, level)
        future.add_done_callback(lambda done: self._end(connection, jobs, place, done))

    def _end(
        self, connection: Connection, jobs: deque[Job], place: int, done: asyncio.Future[Any]
    ) -> None:
        if done.cancelled() or connection.is_closed:
            return
        problem = done.exception()
        if problem is not None:
            self._report(
                f"closing the connection {connection.peer}: its compressed batch could not be "
                f"inspected ({type(problem).__name__}: {problem})"
            )
            connection.close()
            return
        connection.verdicts[place] = done.result()
        if jobs:
            self._begin(connection, jobs)
        else:
            connection.admitted()
