"""Counters of the broker: how long the loop was stalled, and what the data plane has handled.

Nothing is exported from here; whoever shows metrics reads `snapshot`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from kstore._fast.data_plane import DataPlane

__all__ = ["LoopStall", "snapshot"]

INTERVAL_S = 0.1
BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class LoopStall:
    """How late a timer of the loop comes: the wait that every request on the loop has, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.max_ms = 0.0
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self._loop = loop
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._due = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        late_ms = (self._loop.time() - self._due) * 1000
        self.max_ms = max(self.max_ms, late_ms)
        self.counts[sum(late_ms > limit for limit in BUCKETS_MS)] += 1
        self.start()


def snapshot(plane: DataPlane, stall: LoopStall) -> dict[str, Any]:
    """All counters, by name; times in milliseconds, sizes in bytes."""
    return {
        "requests": plane.request_counts(),
        "connections": len(plane.open_connections()),
        "connections_made": plane.connections_made,
        "bytes_in": plane.produce.bytes_in,
        "bytes_out": plane.bytes_out,
        "batches_in": plane.produce.batches,
        "fetches_parked": plane.fetch.parked,
        "queued_request_bytes": plane.queued_bytes,
        "loop_stall_max_ms": stall.max_ms,
        "loop_stall_buckets_ms": dict(zip((*BUCKETS_MS, -1), stall.counts, strict=True)),
    }
