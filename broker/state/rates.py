"""A rate over a window of samples, as Kafka measures what quotas limit, and how long to wait until
it is within a bound. Time is given.
"""

from __future__ import annotations

from collections import deque

__all__ = ["SampledRate"]


class SampledRate:
    """What was recorded per second over the last samples."""

    __slots__ = ("_max_samples", "_samples", "_window_ms")

    def __init__(self, max_samples: int = 11, window_ms: int = 1000) -> None:
        self._max_samples = max_samples
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """[start in ms, sum], oldest first."""

    def record(self, now_ms: float, value: float) -> None:
        """Take a value in; a negative one takes it back."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, 0.0])
        self._samples[-1][1] += value

    def per_second(self, now_ms: float) -> float:
        """The rate now."""
        self._purge(now_ms)
        total = sum(sample[1] for sample in self._samples)
        return total * 1000 / self._elapsed_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: float) -> float:
        """How long nothing may come, so that the rate is back at the bound; 0 if it is within."""
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
        """The time that the samples stand for: at least all but one of a full set's windows, so
        that a burst at the beginning is allowed.
        """
        elapsed = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = self._max_samples - 1 - int(elapsed // self._window_ms)
        return elapsed + max(missing, 0) * self._window_ms
