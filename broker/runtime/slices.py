"""Long loops in small pieces: other work on the event loop has its turn every 2 milliseconds; and
the turns that all wide requests share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

__all__ = ["Slices", "Turns"]

SLICE_S = 0.002


class Slices:
    """The turns of one long piece of work."""

    def __init__(self) -> None:
        self._end = monotonic() + SLICE_S

    async def breathe(self) -> None:
        """Called after each small piece."""
        if monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = monotonic() + SLICE_S


class Turns:
    """One turn of the event loop after the other, each for one of those who ask: however many wide
    requests there are, they take one slice of each round of the loop together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    def next(self) -> asyncio.Future[None]:
        """Done when it is the caller's turn."""
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._give)
        return turn

    def _give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its task may have been cancelled
                turn.set_result(None)
                break
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self._loop.call_soon(self._give)
