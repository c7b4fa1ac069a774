"""The progress of a run over many seeds, in a file, so that the run can be stopped and continued.
Also its speed.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

WRITE_EVERY = 20


class Progress:
    """The results of the seeds so far. Without a path nothing is written."""

    def __init__(self, path: str, seeds: range, command: str, *, resume: bool) -> None:
        self.failed: list[dict[str, Any]] = []
        self.seeds = seeds
        self.command = command
        self._path = Path(path) if path else None
        self._done: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._cpu_s = 0.0
        self._began = time.monotonic()
        self._here = 0
        if resume:
            self._read()

    def _read(self) -> None:
        if self._path is None or not self._path.exists():
            raise SystemExit("--resume needs the --summary file of the run that is to go on")
        known = json.loads(self._path.read_text(encoding="utf-8"))
        self.seeds = range(known["first"], known["first"] + known["seeds"])
        self.failed = known["failed"]
        self._cpu_s = known["cpu_s"]
        self._counts.update(known["counts"])
        for first, last in known["done"]:
            self._done.update(range(first, last + 1))

    @property
    def left(self) -> list[int]:
        """The seeds that have not run yet."""
        return [seed for seed in self.seeds if seed not in self._done]

    def note(self, report: Any) -> None:
        """Record that a seed has run."""
        self._done.add(report.seed)
        self._here += 1
        self._cpu_s += report.cpu_s
        self._counts.update(report.counts)
        if report.violations:
            again = f"{self.command} --seed {report.seed} --trace"
            row = {"seed": report.seed, "violations": list(report.violations), "again": again}
            self.failed.append(row)
        if report.violations or self._here % WRITE_EVERY == 0:
            self.write()

    def write(self) -> None:
        if self._path is None:
            return
        told = {
            "first": self.seeds.start,
            "seeds": len(self.seeds),
            "run": len(self._done),
            "failed": self.failed,
            "cpu_s": round(self._cpu_s, 1),
            "counts": dict(sorted(self._counts.items())),
            "done": _ranges(sorted(self._done)),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        new.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        os.replace(new, self._path)

    def sentence(self) -> str:
        """The progress, and an estimate of the remaining time."""
        minutes = (time.monotonic() - self._began) / 60
        per_minute = self._here / minutes if minutes > 0 else 0.0
        left = len(self.seeds) - len(self._done)
        per_cpu_minute = 60 * len(self._done) / self._cpu_s if self._cpu_s else 0.0
        return (
            f"{len(self._done)} of {len(self.seeds)} seeds, {len(self.failed)} failed, "
            f"{per_cpu_minute:.0f} per CPU minute, "
            f"{left / per_minute if per_minute else 0:.0f} minutes left"
        )


def _ranges(seeds: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for seed in seeds:
        if found and found[-1][1] == seed - 1:
            found[-1][1] = seed
        else:
            found.append([seed, seed])
    return found
