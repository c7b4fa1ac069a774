"""Splits long work into small pieces, so that other work on the event loop runs at least every 2
milliseconds. Also has the turns that all wide requests share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TypeVar

from kstore.broker.state.work import RunningWork, Work

__all__ = ["SLICE_S", "Room", "Slices", "Turns"]

T = TypeVar("T")
SLICE_S = 0.002


class Slices:
    """The turns of one long piece of work."""

    def __init__(self, turns: Turns | None = None) -> None:
        """``turns``: turns that it shares with similar work."""
        self._turns = turns
        self._end = monotonic() + SLICE_S

    @property
    def over(self) -> bool:
        """Whether the next `breathe` lets other work run."""
        return monotonic() >= self._end

    async def breathe(self) -> None:
        """Call this after each small piece."""
        if self.over:
            await (asyncio.sleep(0) if self._turns is None else self._turns.next())
            self._end = monotonic() + SLICE_S

    async def do(self, work: Work[T]) -> T:
        """Run work, and return its result."""
        running = RunningWork(work)
        while not running.go_on():
            await self.breathe()
        return running.result


class Turns:
    """Shares the turns of the event loop. In each turn one of the waiting tasks runs, so all wide
    requests together use one slice of each turn.
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
            if not turn.done():  # the task that waited may have been cancelled
                turn.set_result(None)
                break
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self._loop.call_soon(self._give)


class Room:
    """A limit on concurrent work. Work beyond the limit waits in order. Work that is larger than
    the limit runs alone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def enter(self, size: int) -> None:
        """Wait until there is room and reserve it. `leave` releases it."""
        if not self._waiting and self._fits(size):
            self._taken += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)
            raise

    def leave(self, size: int) -> None:
        """Release the room."""
        self._taken -= size
        while self._waiting:
            turn, wanted = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(wanted):
                    return
                self._taken += wanted
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self._most
