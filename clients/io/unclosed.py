"""Handles clients that were not closed: when one is garbage collected, when its loop closes
(asyncio.run) and when Python exits, a producer sends its waiting records, and a consumer leaves its
group.

A process that is killed, or that exits by a signal that Python does not handle (SIGTERM by
default), does none of this. Neither does a forked child: waiting records belong to its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # its own exit function must run after ours
import logging
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from kstore.clients.io.loop_thread import LoopThread

__all__ = ["Unclosed"]

_log = logging.getLogger("kstore.clients")
SILENT_S = 3.0
_all: set[Unclosed] = set()
_is_registered = False


class Unclosed:
    """Represents a client that may be left open; it must not have a reference to the client.

    `finish` does the remaining work, and closes; `flush` only sends waiting records. Both return
    within `patience_s`. `what` names what the exit waits for. `lost` is called if the loop is
    already closed.
    """

    def __init__(
        self,
        owner: object,
        running: LoopThread | asyncio.AbstractEventLoop,
        finish: Callable[[], Coroutine[Any, Any, None]],
        *,
        what: str,
        patience_s: float,
        flush: Callable[[], Coroutine[Any, Any, None]] | None = None,
        lost: Callable[[], None] | None = None,
    ) -> None:
        self.what = what
        self.patience_s = patience_s
        self._pid = os.getpid()
        self._thread = running if isinstance(running, LoopThread) else None
        self._loop = running.loop if isinstance(running, LoopThread) else running
        self._finish, self._flush, self._lost = finish, flush, lost
        self._ending: concurrent.futures.Future[None] | None = None
        self._is_over = False
        self._collected = weakref.finalize(owner, self.begin)
        self._collected.atexit = False
        self._guard: AsyncGenerator[None] | None = None
        if self._thread is None:
            self._guard = self._until_the_loop_ends()
            with suppress(StopIteration):
                self._guard.__anext__().send(None)  # it waits in its yield, and the loop knows it
        _all.add(self)
        _register()

    def closed(self) -> None:
        """The user closed the client."""
        self._over()
        self._collected.detach()
        if self._guard is not None:
            guard, self._guard = self._guard, None
            with suppress(StopIteration, RuntimeError):
                guard.aclose().send(None)

    def begin(self) -> concurrent.futures.Future[None] | None:
        """Start to finish on the loop; None if there is nothing to wait for."""
        if self._is_over or os.getpid() != self._pid:
            return None
        if self._loop.is_closed():
            self._over()
            if self._lost is not None:
                self._lost()
            return None
        if self._ending is None:
            self._ending = self._scheduled(self._finish)
            if self._ending is not None and self._thread is not None:
                self._ending.add_done_callback(self._ended)
        return self._ending

    def finish_here(self) -> None:
        """Finish at exit, on a loop of the user's that is not running."""
        if self._loop.is_running() or self._loop.is_closed():
            return
        ending = self.begin()
        if ending is not None:
            self._loop.run_until_complete(asyncio.wrap_future(ending, loop=self._loop))

    def flush(self) -> concurrent.futures.Future[None] | None:
        """Start to send waiting records, and stay open: other threads may continue."""
        if self._flush is None or self._thread is None or os.getpid() != self._pid:
            return None
        return self._ending or self._scheduled(self._flush)

    def _scheduled(
        self, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> concurrent.futures.Future[None] | None:
        if self._loop.is_closed() or (self._thread is not None and self._thread.is_closed):
            return None
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def _ended(self, future: concurrent.futures.Future[None]) -> None:
        self._over()
        if self._thread is not None:
            self._thread.close()

    def _over(self) -> None:
        self._is_over = True
        _all.discard(self)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """asyncio.run closes the generators of its loop, and waits for them."""
        try:
            yield
        finally:
            if not self._is_over:
                self._over()
                await self._finish()


def _register() -> None:
    """Registered after the first LoopThread, so that loops stop after this."""
    global _is_registered
    if not _is_registered:
        _is_registered = True
        atexit.register(_finish_all)
        threading._register_atexit(_flush_all)  # type: ignore[attr-defined]


def _flush_all() -> None:
    """Runs before Python waits for its threads: executors, which resolve names, still work."""
    _wait([(each, each.flush()) for each in list(_all)])


def _finish_all() -> None:
    """Runs after the last thread that may have used a client."""
    for each in list(_all):
        each.finish_here()
    _wait([(each, each.begin()) for each in list(_all)])


def _wait(begun: list[tuple[Unclosed, concurrent.futures.Future[None] | None]]) -> None:
    waited = {future: each for each, future in begun if future is not None}
    if not waited:
        return
    patience_s = max(each.patience_s for each in waited.values())
    _, late = concurrent.futures.wait(waited, SILENT_S)
    if late:
        whats = ", ".join(sorted({waited[future].what for future in late}))
        _log.warning("exit waits for %s, for up to %.0f s", whats, patience_s)
        _, late = concurrent.futures.wait(late, patience_s)
    for future in late:
        future.cancel()
