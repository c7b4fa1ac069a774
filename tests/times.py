"""The cost of each test file, in CPU seconds of the test process and all processes that it starts,
and the budget of each file. `make test` writes build/test-times.json and names the files over their
budget. tests/times.json is the recorded copy, the source of the budgets. `make check` writes
build/check-times.json, and warns if its tests together use more than their budget.

    python -m tests.times            compare the last `make test` with the recorded times
    python -m tests.times --record   record the last `make test`
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAST_RUN = ROOT / "build" / "test-times.json"
RECORDED = ROOT / "tests" / "times.json"
SMALL_S = 5.0
"""The budget of a file that is not recorded; cheaper files are not recorded."""
SLACK = 1.5
"""A file may cost this many times its recorded cost, plus SMALL_S: machines differ."""
QUICK_S = 240.0
"""The budget of all tests of `make check`, so that it ends within 3 minutes on 2 cores: collection,
lint and types take 40 seconds more.
"""
TICK = 0.01
"""Seconds of one clock tick in /proc (USER_HZ is 100 on every Linux platform)."""


class Cost(NamedTuple):
    """The cost of a test, or of a file of tests."""

    cpu: float
    wall: float


class TestTimes:
    """The pytest plugin. A test's cost comes with its last report, also from xdist's workers."""

    def __init__(self, written: Path, limit_s: float = math.inf) -> None:
        self._written, self._limit_s = written, limit_s
        self._files: dict[str, Counter[str]] = {}
        self._tests: dict[str, Counter[str]] = {}
        self._before, self._living = now(), 0.0
        self._measures, self._is_last = False, True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Processes that are still alive are counted only at a file's end, because that reads all
        of /proc.
        """
        if not self._measures:
            self._measures, self._living = True, of_living()
        # the cost before this file is its collection, or the collection of all files
        if self._is_last:
            self._before = now()
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Attach the cost since the last test's end, including this test's fixtures."""
        report = yield
        if call.when == "teardown":
            after, before = now(), self._before
            report.test_cost = {"cpu": after.cpu - before.cpu, "wall": after.wall - before.wall}
            self._before = after
            if self._is_last:
                living = of_living()
                report.living_cost = {"cpu": living - self._living}
                self._living = living
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test's cost to its file; a test that runs again counts again."""
        file = self._files.setdefault(report.nodeid.partition("::")[0], Counter())
        if hasattr(report, "test_cost"):
            file.update(report.test_cost)
            self._tests.setdefault(report.nodeid, Counter()).update(report.test_cost)
        file.update(getattr(report, "living_cost", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the costs: the workers' reports arrive in the process that started them."""
        if hasattr(session.config, "workerinput") or not self._tests:
            return
        slowest = sorted(self._tests, key=lambda test: -self._tests[test]["cpu"])[:100]
        written = {
            "files": {name: rounded(self._files[name]) for name in sorted(self._files)},
            "slowest": {name: rounded(self._tests[name]) for name in slowest},
        }
        self._written.parent.mkdir(parents=True, exist_ok=True)
        self._written.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the files that are over their budget."""
        used = {name: cost["cpu"] for name, cost in self._files.items()}
        if self._tests:
            terminalreporter.section(f"test files took {sum(used.values()):.0f} CPU seconds")
            for line in [*over_budget(used, recorded()), *over_limit(used, self._limit_s)]:
                terminalreporter.line(line)


def rounded(cost: Counter[str]) -> dict[str, float]:
    """A cost in the file's format."""
    return {key: round(value, 2) for key, value in cost.items()}


def recorded() -> dict[str, float]:
    """CPU seconds of each recorded file."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def last_run() -> dict[str, float]:
    """CPU seconds of each file in the last `make test`."""
    files = json.loads(LAST_RUN.read_text(encoding="utf-8"))["files"]
    return {name: cost["cpu"] for name, cost in files.items()}


def over_budget(used: Mapping[str, float], known: Mapping[str, float]) -> list[str]:
    """A line for each file that used more CPU seconds than its budget, the worst first."""
    budgets = {name: SMALL_S + SLACK * known.get(name, 0.0) for name in used}
    over = sorted((budgets[name] - used[name], name) for name in used if used[name] > budgets[name])
    return [
        f"{name}: {used[name]:.1f} CPU seconds, its budget is {budgets[name]:.1f}"
        for _, name in over
    ]


def over_limit(used: Mapping[str, float], limit_s: float) -> list[str]:
    """A warning and the most expensive files, if all together used more CPU seconds than this."""
    total = sum(used.values())
    if total <= limit_s:
        return []
    worst = sorted(used, key=lambda name: -used[name])[:10]
    return [
        f"WARNING: {total:.0f} CPU seconds are more than the {limit_s:.0f} that these tests may "
        "take. Make the most expensive cheaper, or mark them slow:",
        *(f"    {used[name]:.1f} {name}" for name in worst),
    ]


def now() -> Cost:
    """The CPU seconds of this process and of the children that it waited for, so far."""
    own, dead = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    cpu = own.ru_utime + own.ru_stime + dead.ru_utime + dead.ru_stime
    return Cost(cpu, time.monotonic())


def of_living() -> float:
    """The CPU seconds of all living descendants, and of the children that they waited for."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended: its parent counts it
            continue
        children.setdefault(int(fields[1]), []).append(int(process.name))
        used[int(process.name)] = sum(int(ticks) for ticks in fields[11:15]) * TICK
    found, pids = 0.0, children.get(os.getpid(), [])
    while pids:
        found += sum(used[pid] for pid in pids)
        pids = [pid for parent in pids for pid in children.get(parent, [])]
    return found


def main() -> int:
    """Compare or record the last run; 1 when a file is over its budget."""
    parser = argparse.ArgumentParser(prog="python -m tests.times")
    parser.add_argument("--record", action="store_true", help="make the last run the recorded one")
    asked = parser.parse_args()
    if not LAST_RUN.exists():
        print(f"{LAST_RUN} is not there: run `make test` first", file=sys.stderr)
        return 2
    used = last_run()
    if asked.record:
        kept = {name: round(cpu, 1) for name, cpu in sorted(used.items()) if cpu >= SMALL_S}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(f"{len(kept)} files of {SMALL_S:.0f} CPU seconds or more recorded in {RECORDED}")
        return 0
    over = over_budget(used, recorded())
    print(
        "\n".join([*over, f"{sum(used.values()):.0f} CPU seconds, {len(over)} files over budget"])
    )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
