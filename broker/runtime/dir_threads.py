"""One thread per log dir for calls that may wait for its disk: opening, creating, renaming and
removing logs. The loop awaits it and continues meanwhile; a log dir that hangs blocks only its own
calls.

The calls of one log dir run in order. Records are not written here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["HANGS_AFTER_S", "DirThreads", "LogDirHangsError"]

T = TypeVar("T")
HANGS_AFTER_S = 3.0
"""A call that takes longer is reported to the operator, and new logs are created in other
log dirs.
"""


class LogDirHangsError(Exception):
    """A log dir hangs, so the call is no longer awaited."""


class _DirThread:
    """The thread of one log dir, and its calls."""

    def __init__(self, name: str) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.calls: deque[str] = deque()
        """The running call, and those that wait."""
        self.begun_s = 0.0
        """When the running call began."""
        self.hanging = asyncio.Event()
        self.look: asyncio.TimerHandle | None = None


class DirThreads:
    """The threads of all log dirs, each created on first use. Use it on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[str], object],
        name: str = "kstore-dir",
    ) -> None:
        self._loop = loop
        self._report = report
        self._name = name
        self._threads: dict[str, _DirThread] = {}
        self.on_error: Callable[[str, Exception], object] | None = None
        """Called with the path of a log dir and the exception that a call raised there."""

    def run(self, path: str, what: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call in the thread of the log dir with this path, even if its caller is cancelled;
        ``what`` names it for the operator, in case it hangs.
        """
        thread = self._thread(path)
        thread.calls.append(what)
        if len(thread.calls) == 1:
            thread.begun_s = self._loop.time()
        self._look_later(path, thread)
        done = self._loop.run_in_executor(thread.executor, call)
        done.add_done_callback(lambda done: self._done(path, thread, done))
        return asyncio.shield(done)

    def hangs(self, path: str) -> bool:
        """Whether a call in this log dir takes very long."""
        thread = self._threads.get(path)
        return thread is not None and thread.hanging.is_set()

    async def ended(self, done: asyncio.Future[Any], paths: Iterable[str]) -> bool:
        """Wait for work that needs these log dirs. Returns False as soon as one of them hangs; the
        work then continues, but the caller does not get its result.
        """
        hanging = [asyncio.ensure_future(self._thread(path).hanging.wait()) for path in paths]
        try:
            await asyncio.wait([done, *hanging], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in hanging:
                each.cancel()
        if not done.done():
            done.add_done_callback(lambda done: done.cancelled() or done.exception())
        return done.done()

    async def result(self, call: asyncio.Future[T], path: str) -> T:
        """The result of a call in a log dir; LogDirHangsError as soon as it hangs."""
        if not await self.ended(call, [path]):
            raise LogDirHangsError(path)
        return await call

    def _thread(self, path: str) -> _DirThread:
        thread = self._threads.get(path)
        if thread is None:
            thread = self._threads[path] = _DirThread(f"{self._name}-{len(self._threads)}")
        return thread

    def close(self) -> None:
        """End the threads, once their calls have ended."""
        for thread in self._threads.values():
            if thread.look is not None:
                thread.look.cancel()
            thread.executor.shutdown(wait=True)

    def _done(self, path: str, thread: _DirThread, done: asyncio.Future[T]) -> None:
        what, taken_s = thread.calls.popleft(), self._loop.time() - thread.begun_s
        thread.begun_s = self._loop.time()
        if thread.hanging.is_set():
            thread.hanging.clear()
            self._report(f"the log dir {path} answers again: {what} took {taken_s:.1f} s")
        if thread.calls:
            self._look_later(path, thread)
        problem = None if done.cancelled() else done.exception()
        if isinstance(problem, Exception) and self.on_error is not None:
            self.on_error(path, problem)

    def _look_later(self, path: str, thread: _DirThread) -> None:
        if thread.look is None:
            at_s = thread.begun_s + HANGS_AFTER_S
            thread.look = self._loop.call_at(at_s, self._look, path, thread)

    def _look(self, path: str, thread: _DirThread) -> None:
        """Report a call that takes long, once."""
        thread.look = None
        if not thread.calls or thread.hanging.is_set():
            return
        if self._loop.time() < thread.begun_s + HANGS_AFTER_S:
            self._look_later(path, thread)
            return
        thread.hanging.set()
        self._report(
            f"the log dir {path} hangs: {thread.calls[0]} has not ended for "
            f"{HANGS_AFTER_S:g} s; requests that need it wait, all others continue"
        )
