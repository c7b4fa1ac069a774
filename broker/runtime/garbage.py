"""Garbage collection in small steps, so that it does not block the loop: with 10,000 partitions a
collection of all objects takes 100 to 300 ms.

Each collection scans only objects that were created since the one before. Those that it finds in
use are frozen: they are still freed when their last reference goes, but no collection scans them.
Frozen objects in a reference cycle, such as asyncio's transports, would never be freed. When so
many have accumulated that this could matter, all objects are scanned once more: at a moment without
requests, or after an hour without such a moment.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

__all__ = ["Garbage"]


def _is_incremental() -> bool:
    """Whether this Python has the incremental collector: 3.14.0 to 3.14.4 have it, unless they were
    built with the former one. It has no third threshold.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*usual[:2], 1)
    ignored = gc.get_threshold()[2] != 1
    gc.set_threshold(*usual)
    return ignored


INCREMENTAL = _is_incremental()
THRESHOLDS = (700, 5, 0) if INCREMENTAL else (300, 0, 0)
"""The thresholds of Python's collector. It starts when the number of new objects exceeds the number
of freed ones by the first threshold. If new objects replace old ones, it scans several times as
many objects as the threshold. With a group of 1,000 members that rebalances, it scanned up to
19,000 objects with (700, 5, 0), and up to 1,500 with (300, 0, 0). It takes 0.3 to 0.9 us for each
object.
"""
FREEZES_FROM = 2 if INCREMENTAL else 0
"""The generation from which a collection freezes. An incremental collector does a part of the work
each time, and calls that generation 1.
"""
CHECK_S = 600.0
"""How often the number of frozen objects is checked."""
MOST_FREEZES = 5000
"""After this many collections that freeze objects, the check runs at once."""
CALM_S = 0.5
"""How long there must be no requests before all objects are scanned."""
PATIENCE_S = 3600.0
"""If there is no such moment within this time, all objects are scanned anyway."""
FEW_OBJECTS = 200_000
"""An increase since the last full scan that does not matter."""


class Garbage:
    """The collector of this process, while a broker serves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: Callable[[], int]) -> None:
        """``requests`` returns how many requests were answered so far."""
        self._loop = loop
        self._requests = requests
        self._usual = gc.get_threshold()
        self._kept = 0
        self._freezes = 0
        """Collections that froze objects since the last check."""
        self._is_waiting = False
        """Whether a scan waits for a moment without requests."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, and freeze existing objects."""
        gc.freeze()
        self._usual = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._begin_anew()

    def stop(self) -> None:
        """Restore Python's own collection."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._usual)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] >= FREEZES_FROM:
            gc.freeze()
            self._freezes += 1
            if self._freezes == MOST_FREEZES:  # in any thread
                self._loop.call_soon_threadsafe(self._check_early)

    def _check_early(self) -> None:
        if self._timer is not None and not self._is_waiting:
            self._timer.cancel()
            self._check()

    def _check(self) -> None:
        """If there are more than twice as many frozen objects as after the last full scan, wait for
        a moment without requests to scan all of them.
        """
        self._freezes = 0
        if gc.get_freeze_count() > 2 * self._kept + FEW_OBJECTS:
            self._is_waiting = True
            self._look_when_calm(-1, self._loop.time() + PATIENCE_S)
        else:
            self._timer = self._loop.call_later(CHECK_S, self._check)

    def _look_when_calm(self, before: int, at_last: float) -> None:
        count = self._requests()
        if count != before and self._loop.time() < at_last:
            self._timer = self._loop.call_later(CALM_S, self._look_when_calm, count, at_last)
            return
        gc.unfreeze()
        gc.collect()  # the rest is frozen
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._freezes = 0
        self._is_waiting = False
        # All objects are frozen, so this scans none. Python delays the next full collection until
        # the new objects are a quarter of those that the last one has kept: none now.
        gc.collect()
        self._kept = gc.get_freeze_count()
        self._timer = self._loop.call_later(CHECK_S, self._check)
