"""Limits the number and time of connections that are in a handshake or not authenticated yet.

Beyond the limit, the oldest is closed: real clients need only milliseconds to authenticate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kstore.config import BrokerConfig

__all__ = ["Unauthenticated"]

TIMEOUT, LIMIT = "kstore.authentication.timeout.ms", "kstore.max.unauthenticated.connections"


class Unauthenticated:
    """The unauthenticated connections of one broker."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timeout_ms: int = config[TIMEOUT]
        self._limit: int = config[LIMIT]
        self._waiting: dict[object, tuple[asyncio.TimerHandle, Callable[[str], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, who: object, close: Callable[[str], None]) -> None:
        """Add a connection. ``close(reason)`` is called if ``who`` is not removed in time, or the
        limit is reached.
        """
        self.remove(who)
        if len(self._waiting) >= self._limit:
            self._close(
                next(iter(self._waiting)),
                f"{self._limit} newer connections are waiting to authenticate ({LIMIT})",
            )
        late = f"it did not authenticate within {self._timeout_ms} ms ({TIMEOUT})"
        timer = self._loop.call_later(self._timeout_ms / 1000, self._close, who, late)
        self._waiting[who] = (timer, close)

    def remove(self, who: object) -> None:
        """Remove a connection, which has authenticated or was closed."""
        found = self._waiting.pop(who, None)
        if found is not None:
            found[0].cancel()

    def _close(self, who: object, reason: str) -> None:
        timer, close = self._waiting.pop(who)
        timer.cancel()
        close(reason)
