"""The distribution of values in buckets of powers of two, and quantiles over the last one to two
minutes, as Kafka's histograms report them. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

__all__ = ["Distribution", "RecentValues", "quantile_of"]

BUCKETS = 40
WINDOW_S = 60.0


class RecentValues(NamedTuple):
    """The values since the start of the previous window."""

    seen: int
    total: int
    largest: int
    buckets: Sequence[int]
    seconds: float
    timed: int
    """The number of values in these seconds. Values before the first call are not included."""

    @property
    def per_second(self) -> float:
        """The rate. 0 at the first call."""
        return self.timed / self.seconds if self.seconds else 0.0

    @property
    def mean(self) -> float:
        """The mean. 0 without values."""
        return self.total / self.seen if self.seen else 0.0


class Distribution:
    """Counts values of at least 0. Bucket n counts those with n bits."""

    __slots__ = ("_first", "_largest", "_marks", "buckets", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.buckets = [0] * BUCKETS
        self._first = 0
        """The number of values before the first call."""
        self._largest = [0, 0]
        """The largest value in this window, and in the one before."""
        self._marks: list[tuple[float, int, int, list[int]]] = []
        """(time, count, total, buckets) at the start of the previous window, and of this one."""

    def record(self, value: int) -> None:
        """Count a value."""
        self.count += 1
        self.total += value
        self.buckets[min(value.bit_length(), BUCKETS - 1)] += 1
        if value > self._largest[0]:
            self._largest[0] = value

    def lately(self, now_s: float) -> RecentValues:
        """The values of the last one or two windows. ``now_s`` is a monotonic clock. A window ends
        at the first call after its time.
        """
        if not self._marks or now_s - self._marks[-1][0] >= WINDOW_S:
            begun = bool(self._marks)
            mark = (now_s, self.count, self.total, self.buckets.copy())
            if not begun:  # all values before the first call
                mark = (now_s, 0, 0, [0] * BUCKETS)
                self._first = self.count
            self._marks = [*self._marks[-1:], mark]
            if begun:
                self._largest = [0, self._largest[0]]
        since_s, count, total, buckets = self._marks[0]
        lately = [now - then for now, then in zip(self.buckets, buckets, strict=True)]
        return RecentValues(
            self.count - count, self.total - total, max(self._largest), lately, now_s - since_s,
            self.count - max(count, self._first),
        )  # fmt: skip


def quantile_of(buckets: Sequence[int], quantile: float) -> float:
    """The value that this fraction of the counted values did not exceed, interpolated between the
    bounds of its bucket. NaN if nothing was counted.
    """
    wanted = sum(buckets) * quantile
    passed = 0
    for number, here in enumerate(buckets):
        if here and passed + here >= wanted:
            low, high = (1 << number >> 1 if number else 0), 1 << number
            return low + (high - low) * (wanted - passed) / here
        passed += here
    return nan
