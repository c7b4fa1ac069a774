"""How things are measured: repetitions in turns, medians, and what a process has used so far. It
knows nothing of what is measured.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["Settings", "cpu_seconds", "in_turns", "memory_mb", "timed"]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Settings:
    """What the command line asked for: `quick` runs are small, and only an indication."""

    def __init__(self, *, quick: bool, scratch: Path) -> None:
        self.quick = quick
        self.scratch = scratch

    def pick(self, full: int, quick: int) -> int:
        """The full or the quick size."""
        return quick if self.quick else full


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call took."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Runs every case once per round, one after the other, so that a busy spell of the machine
    falls on all of them; returns each case's median.
    """
    results: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            results[name].append(case())
    return {name: statistics.median(values) for name, values in results.items()}


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_mb(pid: int) -> dict[str, float]:
    """A process's `Pss` (shared pages in part) and `Rss`, in MB of 10^6 bytes."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Pss", "Rss"):
            found[name] = int(rest.split()[0]) * 1024 / 1e6
    return found
