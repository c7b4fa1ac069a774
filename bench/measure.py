"""How to measure: repetitions in turns, medians and spreads, percentiles, and the CPU time that a
process has used. It does not know what is measured.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

__all__ = [
    "FamilyClock",
    "Figures",
    "NotServedError",
    "Settings",
    "Side",
    "cpu_seconds",
    "in_turns",
    "memory_mb",
    "percentile",
    "process_family",
    "progress",
    "system_seconds",
    "take_turns",
    "timed",
    "touch_memory",
]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2  # in a clock's number, in addition to the process id: see clock_getcpuclockid(3)
Figures = Mapping[str, float]
"""The results of one run of one case: figures by name."""


class NotServedError(RuntimeError):
    """The broker does not support an API that the case needs. The message names it."""


class Settings:
    """The options of the command line. `quick` runs are small, and only an indication; `alone`
    omits Kafka. With `cases`, a case runs only if its name contains one of these words.
    """

    def __init__(
        self, *, quick: bool, scratch: Path, alone: bool = False, cases: Sequence[str] = ()
    ) -> None:
        self.quick = quick
        self.scratch = scratch
        self.alone = alone
        self.cases = tuple(cases)

    def wants(self, case: str) -> bool:
        """True if a case with this name was requested."""
        return not self.cases or any(word in case for word in self.cases)

    def pick(self, full: int, quick: int) -> int:
        """The full or the quick size."""
        return quick if self.quick else full


@dataclasses.dataclass
class Side:
    """The turns of one contestant: each figure's values, one per turn, in order. `state` says why
    there are none: "not served", or "failed: ...". If a turn of a side has failed, none of its
    turns is reported.
    """

    values: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    state: str = ""

    def add(self, figures: Figures) -> None:
        """Add the figures of one turn."""
        for name, value in figures.items():
            self.values.setdefault(name, []).append(value)

    def median(self, name: str) -> float | None:
        """The median over the turns; None if there is nothing to report."""
        found = self.values.get(name)
        return statistics.median(found) if found and not self.state else None

    def spread(self, name: str) -> tuple[float, float] | None:
        """The smallest and the largest value; None for fewer than two turns."""
        found = self.values.get(name)
        return (min(found), max(found)) if found and len(found) > 1 and not self.state else None


def progress(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def touch_memory(size_bytes: int, folder: Path) -> None:
    """Make the host back the machine's memory, as much as a case will use for the page cache. In a
    virtual machine the first touch of a page costs the host's page fault (here 2 to 5 s of system
    time per GB), and would count against the side that writes first. A file is written and removed:
    the next file gets the same memory. Pages of a process that were touched and freed left the next
    file with cold ones in half of the turns.
    """
    data = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(0, size_bytes, len(data)):
            file.write(data)


def timed(work: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Run every case once per round, one after the other, so that a busy moment of the machine
    affects all of them. Returns each case's median.
    """
    results: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            results[name].append(case())
    return {name: statistics.median(values) for name, values in results.items()}


def take_turns(
    what: str, cases: Mapping[str, Callable[[], Figures]], rounds: int
) -> dict[str, Side]:
    """Like `in_turns`, for cases that have several figures and may fail. A failure ends the turns
    of its own side, is printed to stderr, and stays in the result.
    """
    sides = {name: Side() for name in cases}
    for turn in range(rounds):
        for name, case in cases.items():
            side = sides[name]
            if side.state:
                continue
            try:
                side.add(case())
            except NotServedError as error:
                side.state = "not served"
                progress(f"  {what}, {name}: not served ({error})")
            except Exception as error:  # noqa: BLE001 (whatever it was, the table says it)
                reason = (str(error) or type(error).__name__).strip().splitlines()[0]
                side.state = f"failed: {reason[:160]}"
                progress(f"  {what}, {name}, turn {turn + 1}: {type(error).__name__}: {error}")
    return sides


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed (nearest rank).
    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("a percentile of no values: nothing was measured")
    ordered = sorted(values)
    rank = -(-len(ordered) * share // 1)
    return ordered[min(len(ordered), max(1, int(rank))) - 1]


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used: all its threads, the children that it waited
    for, and the children that still run.
    """
    return sum(_own_cpu_seconds(one) + _waited_cpu_seconds(one) for one in process_family(pid))


def system_seconds(pid: int) -> float:
    """The part of a process's own time that was spent in system calls, in steps of 10 ms."""
    return int(_stat(pid)[12]) / TICKS_PER_S


class FamilyClock:
    """Like `cpu_seconds`, for a process whose grandchildren end although no process waits for them,
    like Spark's idle Python workers. The last seen value of each still counts.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used: dict[int, float] = {}

    def seconds(self) -> float:
        """The time used so far. For processes that no process has waited for: as far as it was
        seen.
        """
        for one in process_family(self._pid):
            self._used[one] = max(self._used.get(one, 0.0), _own_cpu_seconds(one))
        return sum(self._used.values()) + _waited_cpu_seconds(self._pid)


def _own_cpu_seconds(pid: int) -> float:
    """By the process's CPU clock, in nanoseconds; /proc has the same in steps of 10 ms."""
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    except OSError:
        return 0.0  # it has ended: its time is counted in its parent


def _waited_cpu_seconds(pid: int) -> float:
    return sum(int(field) for field in _stat(pid)[13:15]) / TICKS_PER_S


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the command; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []  # its time is counted in its parent


def process_family(pid: int) -> Iterable[int]:
    """A process, its children, and their children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (fields := _stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += children.get(found, [])


def memory_mb(pid: int) -> dict[str, float]:
    """A process's `Pss` (shared pages in part) and `Rss`, in MB of 10^6 bytes."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Pss", "Rss"):
            found[name] = int(rest.split()[0]) * 1024 / 1e6
    return found
