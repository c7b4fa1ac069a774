"""Garbage collection in small steps, so that it does not hold the loop: with 10,000 partitions one
look at all objects takes 100 to 300 ms.

A full collection looks only at what was made since the one before. What it finds in use is frozen:
it goes as soon as nobody refers to it, as ever, but no collection looks at it. What then refers to
itself in a ring, as asyncio's transports do, would stay for good. Where so much has come together
that this could matter, all is looked at once more, in a moment in which nobody asks anything, or
after an hour in which there was none.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

__all__ = ["Garbage"]

THRESHOLDS = (700, 10, 0)
"""Of Python's collector: some 8,000 to 16,000 new objects lie between two full collections."""
CHECK_S = 600.0
"""How often it is looked whether much is frozen."""
CALM_S = 0.5
"""Nobody may have asked anything for so long before all is looked at."""
PATIENCE_S = 3600.0
"""If there is no such moment for so long, it is done all the same."""
FEW_OBJECTS = 200_000
"""So many more than after the last look at all of them matter little."""


class Garbage:
    """The collector of this process, while a broker serves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: Callable[[], int]) -> None:
        """``requests``: how many were answered so far."""
        self._loop = loop
        self._requests = requests
        self._usual = gc.get_threshold()
        self._kept = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """From now on: what is there stays."""
        gc.freeze()
        self._usual = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._begin_anew()

    def stop(self) -> None:
        """Collect as Python does by itself."""
        if self._timer is None:
            return
        self._timer.cancel()
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._usual)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()

    def _check(self) -> None:
        """Where more than twice as much is frozen as was in use, wait for a calm moment."""
        if gc.get_freeze_count() > 2 * self._kept + FEW_OBJECTS:
            self._look_when_calm(-1, self._loop.time() + PATIENCE_S)
        else:
            self._timer = self._loop.call_later(CHECK_S, self._check)

    def _look_when_calm(self, before: int, at_last: float) -> None:
        count = self._requests()
        if count != before and self._loop.time() < at_last:
            self._timer = self._loop.call_later(CALM_S, self._look_when_calm, count, at_last)
            return
        gc.unfreeze()
        gc.collect()  # what is left is frozen
        self._begin_anew()

    def _begin_anew(self) -> None:
        # Of nothing. Python waits with the next one until a quarter as much is new.
        gc.collect()
        self._kept = gc.get_freeze_count()
        self._timer = self._loop.call_later(CHECK_S, self._check)
