"""Counters of the broker: how long the loop was stalled, and what the data plane has handled; and
the same in Prometheus's text form, with what clients have pushed.

Nothing is exported from here; http_api.py does, where it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator, Iterator, Sequence

    from kstore._fast.disk.write_back import WriteBack
    from kstore._fast.network.data_plane import DataPlane
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.loop_holds import LoopHolds
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.security.security import Security
    from kstore.broker.runtime.telemetry.client_metrics import Telemetry
    from kstore.broker.state.work import Work
    from kstore.log import LogDir

__all__ = ["LoopStall", "Measured", "prometheus_lines", "snapshot"]

T = TypeVar("T")
INTERVAL_S = 0.1
BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Measured(Protocol):
    """Of whom something is counted."""

    @property
    def plane(self) -> DataPlane:
        """Requests and bytes."""

    @property
    def holds(self) -> LoopHolds:
        """What held the loop."""

    @property
    def log_manager(self) -> LogManager:
        """Damage."""

    @property
    def membership(self) -> Membership:
        """What is led, and what a controller sees."""

    @property
    def security(self) -> Security | None:
        """Authentications."""

    @property
    def telemetry(self) -> Lazy[Telemetry]:
        """What clients push."""


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


# Counter of `snapshot` to its name and kind in Prometheus's form.
_NAMES = {
    "connections": ("kstore_connections", "gauge"),
    "connections_made": ("kstore_connections_made_total", "counter"),
    "bytes_in": ("kstore_produced_bytes_total", "counter"),
    "bytes_out": ("kstore_sent_bytes_total", "counter"),
    "batches_in": ("kstore_produced_batches_total", "counter"),
    "fetches_parked": ("kstore_fetches_parked", "gauge"),
    "queued_request_bytes": ("kstore_queued_request_bytes", "gauge"),
    "loop_stall_max_ms": ("kstore_loop_stall_max_milliseconds", "gauge"),
}


def prometheus_lines(broker: Measured, stall: LoopStall, *, of_clients: bool) -> Iterator[str]:
    """Everything that is counted, line by line. ``of_clients``: also what clients have pushed,
    which names their topics. Empty lines where others may have their turn.
    """
    from kstore.protocol.registry import APIS

    counted = snapshot(broker.plane, stall)
    for key, (name, kind) in _NAMES.items():
        yield f"# TYPE {name} {kind}"
        yield f"{name} {counted[key]}"
    yield "# TYPE kstore_requests_total counter"
    for api_key, count in counted["requests"].items():
        yield f'kstore_requests_total{{api="{APIS[api_key].name}"}} {count}'
    yield "# TYPE kstore_loop_stall_milliseconds_bucket counter"
    total = 0
    for limit, count in counted["loop_stall_buckets_ms"].items():
        total += count
        bound = "+Inf" if limit < 0 else limit
        yield f'kstore_loop_stall_milliseconds_bucket{{le="{bound}"}} {total}'
    yield from broker.holds.lines()
    for name, value in _log_counters(broker.log_manager).items():
        yield f"# TYPE kstore_{name} counter"
        yield f"kstore_{name} {value}"
    of_cluster = yield from _breathing(broker.membership.gauges())
    gauges = {**_log_gauges(broker.log_manager), **of_cluster}
    for name, value in gauges.items():
        yield f"# TYPE kstore_{name} gauge"
        yield f"kstore_{name} {value}"
    if broker.security is not None:
        yield from broker.security.counts.lines()
    telemetry = broker.telemetry.made
    if telemetry is not None:
        yield "# TYPE kstore_client_telemetry_pushes_total counter"
        yield f"kstore_client_telemetry_pushes_total {telemetry.pushes}"
        yield "# TYPE kstore_client_telemetry_unreadable_total counter"
        yield f"kstore_client_telemetry_unreadable_total {telemetry.unreadable}"
        if of_clients:
            yield from telemetry.lines()


def _breathing(work: Work[T]) -> Generator[str, None, T]:
    """The result of work, with an empty line where it yields."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        yield ""


def _log_counters(log_manager: LogManager) -> dict[str, int]:
    """What was found damaged or lost in the logs of this broker since it started."""
    dirs = log_manager.dirs
    return {
        "log_index_damages_total": sum(log_dir.index_damages for log_dir in dirs),
        "log_damaged_parts_total": sum(log_dir.damages for log_dir in dirs),
        "log_repaired_parts_total": sum(log_dir.repaired_parts for log_dir in dirs),
        "log_lost_offsets_total": sum(log_dir.lost_offsets for log_dir in dirs),
        "log_cold_reads_total": sum(log_dir.pages.cold_reads for log_dir in dirs),
        "log_cold_bytes_total": sum(log_dir.pages.cold_bytes for log_dir in dirs),
        "log_read_ahead_bytes_total": sum(log_dir.pages.ahead_bytes for log_dir in dirs),
        "log_written_early_bytes_total": sum(each.written_bytes for each in _write_backs(dirs)),
    }


def _log_gauges(log_manager: LogManager) -> dict[str, int]:
    """What waits for the disk in the logs of this broker."""
    backs = _write_backs(log_manager.dirs)
    return {
        "log_unwritten_bytes": sum(each.unwritten_bytes for each in backs),
        "log_dir_offline": len(log_manager.failed),
        "log_unwritten_budget_bytes": sum(each.budget_bytes for each in backs),
    }


def _write_backs(dirs: Sequence[LogDir]) -> list[WriteBack]:
    return [log_dir.write_back for log_dir in dirs if log_dir.write_back is not None]
