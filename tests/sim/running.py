"""Runs `python -m tests.sim` for tests: in a process of its own, since a simulation depends on how
Python hashes strings. A file's tests share the process, because it takes 2.3 seconds of CPU until
all of kstore is imported, and many simulations take less. What a seed does after others is the same
(test_simulation.py).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.beside.programs import Dialogue

ROOT = Path(__file__).parents[2]
END = "end"
Simulations = Callable[..., list[dict[str, Any]]]
"""Runs `python -m tests.sim` with these arguments, and returns a report per seed."""


SOME = [range(2), pytest.param(range(2, 6), marks=pytest.mark.thorough)]
"""The seeds of `make test`, and those of `make test-all`; `.ci/run` has 50 other ones beside."""


def seeds_from(first: int, seeds: range) -> tuple[str, ...]:
    """The arguments for these seeds, of which the first one is called 0 here."""
    return "--seed", str(first + seeds.start), "--seeds", str(len(seeds))


@pytest.fixture(scope="module")
def run_simulations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulations]:
    """In the process that the tests of a file share."""
    with new_process(tmp_path_factory.mktemp("sim") / "stderr") as run:
        yield run


@contextmanager
def new_process(errors: Path) -> Iterator[Simulations]:
    """A process that runs simulations until the end of the `with`; its errors go to this file."""
    command = [sys.executable, "-m", "tests.sim.running"]
    env = os.environ | {"PYTHONHASHSEED": "0"}
    process: Dialogue | None = None
    with open(errors, "wb") as file:

        def run(*arguments: str) -> list[dict[str, Any]]:
            nonlocal process
            if process is None:
                process = Dialogue(command, cwd=ROOT, env=env, stderr=file)
            try:
                process.tell(json.dumps(["--json", *arguments]))
                reports = []
                while (line := process.line()) != END:
                    assert line, f"the process has ended:\n{errors.read_text()[-4000:]}"
                    reports.append(json.loads(line))
                assert reports, "no seed was run"
            except BaseException:  # a timeout of pytest, too: the next run must not read its rest
                process.end()
                process = None
                raise
            return reports

        try:
            yield run
        finally:
            if process is not None:
                process.end()


def serve() -> None:
    """Read arguments of `python -m tests.sim`, a list a line; print the reports, and END."""
    from tests.sim.__main__ import main

    for line in sys.stdin:
        main(json.loads(line))
        print(END, flush=True)


if __name__ == "__main__":
    serve()
