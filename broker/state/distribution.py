"""How often values of each size were seen, by powers of two, and their quantiles: those of the last
one to two minutes, as Kafka's histograms tell them. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

__all__ = ["Distribution", "Lately", "quantile_of"]

BUCKETS = 40
WINDOW_S = 60.0


class Lately(NamedTuple):
    """What came since the window before the last one began, as whoever reads them has seen it."""

    seen: int
    total: int
    largest: int
    buckets: Sequence[int]
    seconds: float
    timed: int
    """Of what was seen, what came in these seconds: not what was before the first look."""

    @property
    def per_second(self) -> float:
        """0 at the first look."""
        return self.timed / self.seconds if self.seconds else 0.0

    @property
    def mean(self) -> float:
        """0 if nothing came."""
        return self.total / self.seen if self.seen else 0.0


class Distribution:
    """Values of at least 0. Bucket n has those of n bits."""

    __slots__ = ("_first", "_largest", "_marks", "buckets", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.buckets = [0] * BUCKETS
        self._first = 0
        """How many came before the first look."""
        self._largest = [0, 0]
        """In this window, and in the one before."""
        self._marks: list[tuple[float, int, int, list[int]]] = []
        """(When, count, total, buckets) as the window before began, and this one."""

    def record(self, value: int) -> None:
        """A value was seen."""
        self.count += 1
        self.total += value
        self.buckets[min(value.bit_length(), BUCKETS - 1)] += 1
        if value > self._largest[0]:
            self._largest[0] = value

    def lately(self, now_s: float) -> Lately:
        """The last one or two windows; ``now_s``: a clock that only goes up. A window ends at the
        first look after its time.
        """
        if not self._marks or now_s - self._marks[-1][0] >= WINDOW_S:
            begun = bool(self._marks)
            mark = (now_s, self.count, self.total, self.buckets.copy())
            if not begun:  # all that came before the first look
                mark = (now_s, 0, 0, [0] * BUCKETS)
                self._first = self.count
            self._marks = [*self._marks[-1:], mark]
            if begun:
                self._largest = [0, self._largest[0]]
        since_s, count, total, buckets = self._marks[0]
        lately = [now - then for now, then in zip(self.buckets, buckets, strict=True)]
        return Lately(
            self.count - count, self.total - total, max(self._largest), lately, now_s - since_s,
            self.count - max(count, self._first),
        )  # fmt: skip


def quantile_of(buckets: Sequence[int], quantile: float) -> float:
    """The value that this part of the counted ones did not exceed: between the bounds of its bucket
    as if its counts were spread evenly. NaN if nothing was counted.
    """
    wanted = sum(buckets) * quantile
    passed = 0
    for number, here in enumerate(buckets):
        if here and passed + here >= wanted:
            low, high = (1 << number >> 1 if number else 0), 1 << number
            return low + (high - low) * (wanted - passed) / here
        passed += here
    return nan
