"""Named timers on the event loop for sessions. Every heartbeat extends a session, so these timers
rarely fire. A timer has an event, not a callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["TimerTable"]

K = TypeVar("K", bound=Hashable)
E = TypeVar("E")


class _Timer(Generic[E]):
    __slots__ = ("deadline", "event", "handle", "wakes_at")

    def __init__(self, deadline: float, event: E) -> None:
        self.deadline = deadline
        self.event = event
        self.wakes_at = deadline
        self.handle: asyncio.TimerHandle | None = None


class TimerTable(Generic[K, E]):
    """Timers by key; when one is due, ``fire(event)`` is called on the loop.

    Extending a timer costs two assignments: the loop's own timer is set again only when the old
    deadline arrives.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[E], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._timers: dict[K, _Timer[E]] = {}
        self.held_by = getattr(fire, "__qualname__", "TimerTable")
        """The name reported when a timer blocks the loop for long."""
        self.fired: K | None = None
        """The key of the last timer that fired."""

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: K) -> bool:
        """Whether a timer of the key is set."""
        return key in self._timers

    def set(self, key: K, delay_ms: int, event: E) -> None:
        """Set a timer, or replace the one of the same key."""
        deadline = self._loop.time() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is not None and timer.wakes_at <= deadline:
            timer.deadline = deadline
            timer.event = event
            return
        self.cancel(key)
        timer = self._timers[key] = _Timer(deadline, event)
        timer.handle = self._loop.call_at(deadline, self._wake, key, timer)

    def cancel(self, key: K) -> None:
        """Cancel a timer; nothing happens if there is none."""
        timer = self._timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def clear(self) -> None:
        """Cancel all timers."""
        for key in list(self._timers):
            self.cancel(key)

    def _wake(self, key: K, timer: _Timer[E]) -> None:
        if timer.deadline > self._loop.time():
            timer.wakes_at = timer.deadline
            timer.handle = self._loop.call_at(timer.deadline, self._wake, key, timer)
            return
        del self._timers[key]
        self.fired = key
        self._fire(timer.event)
