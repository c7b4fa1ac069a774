"""A limit on bytes per second: a sender that has sent too much waits; otherwise it may send any
amount.

Time is passed in, in seconds.
"""

from __future__ import annotations

__all__ = ["RateLimit"]


class RateLimit:
    """`bytes_per_s` None: no limit. Up to one second's worth may be sent at once."""

    def __init__(self, bytes_per_s: float | None) -> None:
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"a rate limit of {bytes_per_s} bytes per second allows nothing")
        self._rate = bytes_per_s
        self._credit = bytes_per_s or 0.0
        self._at: float | None = None

    def wait_s(self, now: float) -> float:
        """Seconds until something may be sent; 0: now."""
        if self._rate is None:
            return 0.0
        if self._at is not None:
            self._credit = min(self._rate, self._credit + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, -self._credit / self._rate)

    def sent(self, size_bytes: int) -> None:
        """So much was sent; it may be more than the credit."""
        self._credit -= size_bytes
