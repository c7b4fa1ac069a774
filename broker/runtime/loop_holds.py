"""Measures what blocks the loop, and for how long. Holds of the loop are counted by name for the
metrics, and logged if they take longer than kstore.slow.loop.ms. A separate thread reports a hold
that has not ended.

The clock is kstore._fast.network.loop_watch's. This file only measures.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kstore.broker.state.exposition import Family, Metrics, escaped, sample
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    from types import FrameType

    from kstore._fast.network.loop_watch import LoopWatch
    from kstore.broker.runtime.node import Node

__all__ = ["LoopHolds"]

BOUNDS_MS = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
BOUNDS_US = tuple(bound * 1000 for bound in BOUNDS_MS)
STUCK_MS = 1000
"""A hold that has lasted this long is reported by the guard's thread before it ends."""
MAX_NAMES = 100
OTHERS = "others"
"""The name for all holds beyond the limit of names."""
COLLECTION = "garbage collection"
FRAMES = 4
"""How many frames of the loop's thread are reported while it is blocked."""
FORMAT, JSON = "kstore.logging.format", "json"
SETTING, LONG_HOLDS = "kstore.slow.loop.ms", "kstore.long.holds.file"
HOLDS = Family(
    "kstore_loop_hold_seconds", "histogram",
    "Holds of the event loop of 1 ms or more, by what held it, without the time it got no core",
)  # fmt: skip
LONGEST = Family(
    "kstore_loop_hold_max_seconds", "gauge",
    "The longest of these holds since the start",
)  # fmt: skip
log = logging.getLogger("kstore.broker")


class _Row:
    """The holds of one name."""

    __slots__ = ("count", "counts", "max_us", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.count = 0
        self.total_us = 0
        self.max_us = 0


class LoopHolds:
    """The holds of a broker's loop since it listens. Holds of less than a millisecond are not
    counted. ``watch`` is None if the loop is not timed.
    """

    def __init__(self, node: Node, watch: LoopWatch | None) -> None:
        self._node = node
        self._watch = watch
        self._rows: dict[str, _Row] = {}
        self._thread: threading.Thread | None = None
        self._stop_fd = -1
        self.on_stuck: Callable[[int], None] | None = None
        """Called on the guard's thread when the loop has been blocked for more than a second, with
        the start of the hold in us on the monotonic clock.
        """

    @property
    def max_ms(self) -> float:
        """The longest hold, without the time that the thread waited for a core, or was stopped with
        the process or by the hypervisor.
        """
        return max((row.max_us for row in self._rows.values()), default=0) / 1000

    @property
    def began_us(self) -> int:
        """When the current hold began, in us on the monotonic clock; 0: there is none."""
        return 0 if self._watch is None else self._watch.began_us

    def start(self) -> None:
        """Start counting, once the broker listens: before that, no client waits."""
        from kstore._fast.network.loop_guard import guard

        watch = self._watch
        if watch is None:
            return
        watch.on_hold = self._note
        watch.writes_json = self._node.config[FORMAT] == JSON
        gc.callbacks.append(watch.on_gc)
        read_fd, self._stop_fd = os.pipe()
        loop_thread = threading.get_ident()

        def run() -> None:
            try:
                guard(watch, read_fd, STUCK_MS, lambda began: self._stuck(loop_thread, began))
            finally:
                os.close(read_fd)

        self._thread = threading.Thread(target=run, name="kstore-guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        if self._watch is None or self._thread is None:
            return
        self._watch.on_hold = None
        gc.callbacks.remove(self._watch.on_gc)
        os.close(self._stop_fd)
        self._thread.join()
        self._thread = None

    def _note(
        self,
        api_key: int,
        callback: Callable[..., Any] | None,
        held_us: int,
        core_us: int,
        waited_us: int,
        stood_us: int,
        stolen_us: int,
        gc_us: int,
    ) -> None:
        """Count a hold (LoopWatch.on_hold) without the time in which the thread could not get a
        core. On a busy machine that time would hide what the broker itself does.
        """
        own_us = max(0, held_us - waited_us - stood_us - stolen_us)
        name = COLLECTION if gc_us * 2 >= held_us else _name_of(api_key, callback)
        row = self._rows.get(name) or self._new_row(name)
        row.counts[bisect_left(BOUNDS_US, own_us)] += 1
        row.count += 1
        row.total_us += own_us
        row.max_us = max(row.max_us, own_us)
        slow_ms = self._node.config[SETTING]
        is_long = own_us >= STUCK_MS * 1000
        if is_long or 0 < slow_ms * 1000 <= own_us:
            sentence = _sentence(name, held_us, core_us, waited_us, stood_us, stolen_us)
            if is_long:
                self._write_long(sentence)
            if slow_ms > 0:
                self._node.report(sentence, "" if is_long else f"the loop was held by {name}")

    def _write_long(self, sentence: str) -> None:
        """Write it to the file of kstore.long.holds.file, which tests read."""
        path = self._node.config[LONG_HOLDS]
        if path:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"broker {self._node.node_id}, process {os.getpid()}: {sentence}\n")

    def _new_row(self, name: str) -> _Row:
        if len(self._rows) >= MAX_NAMES:
            return self._rows.setdefault(OTHERS, _Row())
        row = self._rows[name] = _Row()
        return row

    def _stuck(self, loop_thread: int, began_us: int) -> None:
        """The guard's thread has found that the loop is stuck."""
        on_stuck = self.on_stuck
        if on_stuck is not None:
            on_stuck(began_us)
        self._report_stuck(loop_thread, began_us)

    def _report_stuck(self, loop_thread: int, began_us: int) -> None:
        """Report which function the loop's thread runs. The guard's own line does not have it, as
        the guard does not use Python. Runs on the guard's thread.
        """
        watch = self._watch
        frame = sys._current_frames().get(loop_thread)
        if watch is None or watch.began_us != began_us or frame is None:
            return  # the hold has ended
        callback = watch.running()
        name = "a connection" if callback is None else _name_of(-1, callback)
        log.warning("the loop is still held by %s, which is in %s", name, _place(frame))

    def metrics(self) -> Metrics:
        """The counts, by what blocked the loop."""
        yield HOLDS
        for name, row in sorted(self._rows.items()):
            label = f'held_by="{escaped(name)}"'
            total = 0
            for bound, count in zip((*BOUNDS_MS, 0), row.counts, strict=True):
                total += count
                most = f"{bound / 1000:g}" if bound else "+Inf"
                yield f'kstore_loop_hold_seconds_bucket{{{label},le="{most}"}} {total}'
            yield f"kstore_loop_hold_seconds_sum{{{label}}} {row.total_us / 1e6:.6f}"
            yield f"kstore_loop_hold_seconds_count{{{label}}} {row.count}"
        yield LONGEST
        for name, row in sorted(self._rows.items()):
            yield sample(LONGEST.name, row.max_us / 1e6, held_by=name)


def _name_of(api_key: int, callback: Any) -> str:
    """The name of the API. Without one, the task's name if it has one, else the function's."""
    if api_key in APIS:
        return APIS[api_key].name
    while isinstance(callback, partial):
        callback = callback.func
    owner: Any = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        given = owner.get_name()
        if not given.startswith("Task-"):
            return _label(given)
        callback = owner.get_coro()
    elif hasattr(owner, "held_by"):
        return _label(owner.held_by)
    if callback is None:
        return "a connection"
    return _label(getattr(callback, "__qualname__", None) or type(callback).__name__)


def _label(name: str) -> str:
    return name.replace("\\", "/").replace('"', "'").replace(".<locals>", "")


def _sentence(
    name: str, held_us: int, core_us: int, waited_us: int, stood_us: int, stolen_us: int
) -> str:
    parts = []
    if core_us >= 0:
        rest_us = held_us - core_us - waited_us - stood_us - stolen_us
        parts = [f"{core_us // 1000:,} ms on a core", f"{waited_us // 1000:,} ms waiting for one"]
        if rest_us >= 1000:
            parts.append(f"{rest_us // 1000:,} ms waiting for a disk or a lock")
    if stood_us:
        parts.append(f"{stood_us // 1000:,} ms stopped with the whole process")
    if stolen_us:
        parts.append(f"{stolen_us // 1000:,} ms stopped by the hypervisor")
    parts_text = f" ({', '.join(parts)})" if parts else ""
    return f"the loop was held for {held_us // 1000:,} ms by {name}{parts_text}"


def _place(frame: FrameType | None) -> str:
    """The innermost functions, the innermost first."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES:
        code = frame.f_code
        places.append(f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    return ", called by ".join(places)
