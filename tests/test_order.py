"""Workers that import a test file when they run it: they run and report the same tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.order import few_cases_are_quick, send_less
from tests.times import ROOT

CONFTEST = """
import os
from pathlib import Path
import pytest
from tests.order import read_files_late

def note(what):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(what + "\\n")

def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out")
    read_files_late(config)

@pytest.fixture(scope="session")
def once():
    note("once begins")
    yield
    note("once ends")

@pytest.fixture(scope="module")
def in_file(request, once):
    note(request.module.__name__.rpartition(".")[2] + " begins")
    yield
    note(request.module.__name__.rpartition(".")[2] + " ends")
"""
FILE = """
import pytest
from conftest import note
note(__name__.rpartition(".")[2] + " is imported")

@pytest.mark.slow
def test_left_out(in_file):
    note("slow")

@pytest.mark.parametrize("number", [1, 2])
def test_numbers(in_file, number):
    note(str(number))
"""


def results_of(folder: Path, *options: str) -> tuple[int, str, list[str]]:
    """The exit code, the output and the notes of these tests."""
    notes = folder / "notes"
    notes.write_text("")
    (folder / "conftest.py").write_text(CONFTEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "-p", "no:cacheprovider",
         "--dist", "loadfile", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{folder}", "NOTES": str(notes)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, notes.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.thorough), "2"])
def test_a_file_is_imported_once_and_its_tests_are_chosen_by_marks(
    tmp_path: Path, workers: str
) -> None:
    for number in range(6):
        folder = tmp_path / f"folder{number // 3}"
        folder.mkdir(exist_ok=True)
        (folder / f"test_{number}.py").write_text(FILE)
    # is selected; the next file is in another folder
    nothing = FILE.partition("@pytest.mark.param")[0]
    (tmp_path / "folder0" / "test_nothing.py").write_text(nothing)
    code, output, notes = results_of(tmp_path, "-n", workers, "-m", "not slow")
    assert code == 0, output
    assert "12 passed" in output
    counted = Counter(notes)
    for number in range(6):
        assert counted[f"test_{number} is imported"] == 1
        assert counted[f"test_{number} begins"] == counted[f"test_{number} ends"] == 1
    assert counted["test_nothing is imported"] == 1
    assert counted["1"] == counted["2"] == 6
    assert counted["once begins"] == counted["once ends"] <= int(workers)
    assert counted["slow"] == 0


@pytest.mark.slow
def test_failures_are_reported_and_a_broken_file_keeps_nobody_from_running(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "test_fails.py").write_text("def test_that_fails(): assert 1 == 2\n")
    (tmp_path / "test_good.py").write_text(FILE)
    code, output, notes = results_of(tmp_path, "-n", "1", "-m", "not slow")
    assert code == 1, output
    assert "2 passed" in output
    assert "test_fails.py::test_that_fails - assert 1 == 2" in output
    assert "ERROR test_broken.py" in output
    assert "1 failed" in output
    assert "1 error" in output
    assert notes[-1] == "once ends"


@pytest.mark.slow
def test_single_tests_are_collected_as_ever(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_text(FILE)
    code, output, notes = results_of(tmp_path, "-n", "1", "test_good.py::test_numbers[2]")
    assert code == 0, output
    assert "1 passed" in output
    assert "2" in notes
    assert "1" not in notes


@pytest.mark.parametrize("verbose", [-1, 1])
def test_a_worker_sends_what_the_summary_is_made_of(verbose: int) -> None:
    sent: list[str] = []
    interactor = SimpleNamespace(
        sendevent=lambda name, **fields: sent.append(fields.get("data", {}).get("when", name))
    )
    config: Any = SimpleNamespace(
        getoption=lambda name, default=None: verbose if name == "verbose" else default,
        pluginmanager=SimpleNamespace(get_plugins=lambda: [object(), interactor]),
    )
    send_less(config)
    interactor.sendevent("logstart", nodeid="x")
    for when, outcome in (("setup", "passed"), ("call", "passed"), ("setup", "failed")):
        data = {"when": when, "outcome": outcome, "sections": []}
        interactor.sendevent("testreport", data=data)
    interactor.sendevent("logfinish", nodeid="x")
    interactor.sendevent("runtest_protocol_complete", item_index=0)
    needed = ["call", "setup", "runtest_protocol_complete"]
    everything = ["logstart", "setup", "call", "setup", "logfinish", "runtest_protocol_complete"]
    assert sent == (everything if verbose > 0 else needed)


class Case(pytest.Item):
    """A case of a parametrized test."""

    originalname = "test"

    def runtest(self) -> None:
        """Nothing."""


def test_of_the_cases_of_a_test_one_in_n_is_quick(request: pytest.FixtureRequest) -> None:
    for parent in (request.session, request.node.parent):  # of two tests
        quick = []
        for number in range(8):
            case = Case.from_parent(parent, name=f"test[{number}]")
            case.add_marker(pytest.mark.quick_one_in(3))
            few_cases_are_quick(case)
            if case.get_closest_marker("slow") is None:
                quick.append(number)
        assert quick == [0, 3, 6]
