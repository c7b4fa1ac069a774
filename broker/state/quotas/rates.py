"""A rate over a window of samples, as Kafka measures rates for quotas, and the time until the rate
is within a limit. Times are arguments.
"""

from __future__ import annotations

from collections import deque

__all__ = ["SampledRate", "TokenBucket"]


class SampledRate:
    """The rate per second over the last samples."""

    __slots__ = ("_max_samples", "_samples", "_window_ms")

    def __init__(self, max_samples: int = 11, window_ms: int = 1000) -> None:
        self._max_samples = max_samples
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """[start in ms, sum], oldest first."""

    def record(self, now_ms: float, value: float) -> None:
        """Add a value. A negative value reverses an earlier one."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, 0.0])
        self._samples[-1][1] += value

    def per_second(self, now_ms: float) -> float:
        """The current rate."""
        self._purge(now_ms)
        total = sum(sample[1] for sample in self._samples)
        return total * 1000 / self._elapsed_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: float) -> float:
        """How long to wait without new values until the rate is within the limit. 0 if it is."""
        rate = self.per_second(now_ms)
        if rate <= bound:
            return 0.0
        if bound <= 0:
            return float("inf")
        return (rate - bound) / bound * self._elapsed_ms(now_ms)

    def _purge(self, now_ms: float) -> None:
        limit_ms = now_ms - self._max_samples * self._window_ms
        while self._samples and self._samples[0][0] <= limit_ms:
            self._samples.popleft()

    def _elapsed_ms(self, now_ms: float) -> float:
        """The time that the samples cover, but at least all windows except one, so that a burst at
        the beginning is allowed.
        """
        elapsed = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = self._max_samples - 1 - int(elapsed // self._window_ms)
        return elapsed + max(missing, 0) * self._window_ms


class TokenBucket:
    """Tokens that arrive at a rate, up to a burst (KIP-599). A caller may take more than are
    available. Then no more may be taken until the debt is paid.
    """

    __slots__ = ("_burst_s", "_tokens", "_updated_ms")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._tokens: float | None = None
        self._updated_ms = 0.0

    def take(self, now_ms: float, per_second: float, count: float) -> None:
        """Take tokens, or go into debt."""
        self._tokens = self._refilled(now_ms, per_second) - count
        self._updated_ms = now_ms

    def wait_ms(self, now_ms: float, per_second: float) -> float:
        """How long it takes until the debt is paid. 0 without a debt."""
        tokens = self._refilled(now_ms, per_second)
        return -tokens / per_second * 1000 if tokens < 0 else 0.0

    def _refilled(self, now_ms: float, per_second: float) -> float:
        burst = self._burst_s * per_second
        if self._tokens is None:
            return burst
        return min(burst, self._tokens + (now_ms - self._updated_ms) / 1000 * per_second)
