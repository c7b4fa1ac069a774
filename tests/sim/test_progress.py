"""A run over many seeds reports failures at once, and continues where it was stopped."""

from __future__ import annotations

import importlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.sim.__main__ import each_in_processes
from tests.sim.progress import Progress
from tests.sim.run import Report


def report(seed: int, *violations: str) -> Report:
    return Report(seed, violations, (), "digest", {"records": 2}, 0.5)


def test_a_stopped_run_goes_on_with_the_seeds_that_are_left(tmp_path: Path) -> None:
    path = str(tmp_path / "build" / "sim.json")
    first = Progress(path, range(7, 12), "sim", resume=False)
    first.note(report(8))
    first.note(report(7, "liveness: it stood still"))
    told = json.loads(Path(path).read_text())
    assert (told["run"], told["done"]) == (2, [[7, 8]])
    assert told["failed"] == [
        {"seed": 7, "violations": ["liveness: it stood still"], "again": "sim --seed 7 --trace"}
    ]
    again = Progress(path, range(1), "sim", resume=True)
    assert again.left == [9, 10, 11]
    for seed in again.left:
        again.note(report(seed))
    again.write()
    told = json.loads(Path(path).read_text())
    assert (told["run"], len(told["failed"]), told["cpu_s"]) == (5, 1, 2.5)
    assert told["counts"] == {"records": 10}
    assert again.sentence().startswith("5 of 5 seeds, 1 failed, 120 per CPU minute")


def _dies_at_three(seed: int) -> Report:
    if seed == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return report(seed)


@pytest.mark.slow
def test_a_seed_whose_process_dies_has_failed_and_the_others_run() -> None:
    """The pool of multiprocessing waits for ever for the result of a dead process."""
    # Multiprocessing's name.
    dies = importlib.import_module("tests.sim.test_progress")._dies_at_three
    reports = list(each_in_processes(dies, range(12), 2))
    assert sorted(each.seed for each in reports) == list(range(12))
    failed = [(each.seed, each.violations) for each in reports if each.violations]
    assert failed == [(3, ("crash: the process of the simulation died",))]
