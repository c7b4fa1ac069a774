"""Measures how late a timer of the loop fires. Every request on the loop waits as long.

runtime/loop_holds.py records what blocked the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.state.exposition import Family, Metrics, sample

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopStall"]

INTERVAL_S = 0.1
BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
STALL = Family(
    "kstore_loop_stall_milliseconds", "histogram",
    "How late a timer of the event loop fired; it is set every 100 ms",
)  # fmt: skip
LONGEST = Family("kstore_loop_stall_max_milliseconds", "gauge", "The longest delay of the timer")


class LoopStall:
    """The timer, and its delays."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.max_ms = 0.0
        self.sum_ms = 0.0
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self._loop = loop
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._due = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        late_ms = (self._loop.time() - self._due) * 1000
        self.max_ms = max(self.max_ms, late_ms)
        self.sum_ms += max(late_ms, 0.0)
        self.counts[sum(late_ms > limit for limit in BUCKETS_MS)] += 1
        self.start()

    def metrics(self) -> Metrics:
        """The histogram, and the longest delay."""
        yield STALL
        total = 0
        for limit, count in zip((*BUCKETS_MS, 0), self.counts, strict=True):
            total += count
            yield sample(f"{STALL.name}_bucket", total, le=str(limit) if limit else "+Inf")
        yield sample(f"{STALL.name}_sum", self.sum_ms)
        yield sample(f"{STALL.name}_count", total)
        yield LONGEST
        yield sample(LONGEST.name, self.max_ms)
