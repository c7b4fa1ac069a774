"""An event loop in a background thread, on which the synchronous clients run the asynchronous ones.

The thread is a daemon: a client that was not closed does not keep the interpreter alive. The thread
stops when its LoopThread is closed or garbage collected, or when Python exits.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kstore.net.transport import new_loop

__all__ = ["LoopThread"]

T = TypeVar("T")
_JOIN_S = 10.0
_LOOK_S = 5.0
_numbers = itertools.count(1)


class LoopThread:
    """A running loop; other threads call `run` and `call`."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = new_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(
            target=_serve, args=(self.loop,), name=f"kstore-client-{next(_numbers)}", daemon=True
        )
        self._thread.start()
        self._end = weakref.finalize(self, _stop, self.loop, self._thread, self._pid)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return not self._end.alive

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this loop, for example in a callback of the client."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result or exception; blocks the caller.

        KeyboardInterrupt, and anything else that interrupts the wait, cancels the coroutine. Raises
        RuntimeError if the loop is closed, is the caller's own, or belongs to another process.
        """
        try:
            self._check()
            if self.is_current:
                raise RuntimeError(
                    "this runs on the client's own loop (in a callback?), which can't wait for "
                    "itself; use the asynchronous client, or do it in another thread"
                )
        except RuntimeError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            while True:
                try:
                    return future.result(_LOOK_S)
                except TimeoutError:
                    if future.done():  # just now, or the error is the coroutine's own
                        return future.result()
                    if not self._thread.is_alive():  # another thread is closing it
                        raise RuntimeError("the client is closed") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function on the loop soon; its result is dropped."""
        self._check()
        self.loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Cancel what runs on the loop, and stop the loop and its thread. Calling it again has no
        effect.
        """
        self._end()

    def _check(self) -> None:
        if not self._end.alive:
            raise RuntimeError("the client is closed")
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this client was created in another process, and a fork does not copy its "
                "thread; create a client in each process"
            )


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: runs the loop until it is stopped, then cancels everything that runs on it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_JOIN_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if os.getpid() != pid or not thread.is_alive():
        return
    try:
        loop.call_soon_threadsafe(loop.stop)
    except RuntimeError:  # it is closed already
        return
    if thread is not threading.current_thread():
        thread.join(_JOIN_S)
