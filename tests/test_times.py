"""The recorded costs of test files, and the budgets that come from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import times

CORES, MINUTES = 2, 12


def test_the_recorded_files_fit_into_the_time_of_make_test() -> None:
    assert sum(times.recorded().values()) < CORES * MINUTES * 60


def test_a_file_over_its_budget_is_named_the_worst_first() -> None:
    used = {"a.py": 14.9, "b.py": 15.1, "new.py": 5.1, "cheap.py": 4.9, "worst.py": 90.0}
    over = times.over_budget(used, {"a.py": 6.7, "b.py": 6.7, "worst.py": 20.0})
    assert [line.partition(":")[0] for line in over] == ["worst.py", "new.py", "b.py"]
    assert over[0] == "worst.py: 90.0 CPU seconds, its budget is 35.0"


def test_quick_tests_that_take_too_much_together_are_warned_of() -> None:
    used = {f"{number}.py": float(number) for number in range(1, 13)}
    assert times.over_limit(used, 78.0) == []
    warning, *worst = times.over_limit(used, 77.0)
    assert warning.startswith("WARNING: 78 CPU seconds are more than the 77 ")
    assert [line.split() for line in worst] == [
        [f"{number}.0", f"{number}.py"] for number in range(12, 2, -1)
    ]


@pytest.mark.slow
def test_the_costs_of_processes_that_a_test_starts_count(tmp_path: Path) -> None:
    written = tmp_path / "build" / "times.json"
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "from tests.times import TestTimes\n"
        "def pytest_configure(config):\n"
        f"    config.pluginmanager.register(TestTimes(Path({str(written)!r})))\n"
    )
    (tmp_path / "test_child.py").write_text(
        "import subprocess, sys\n"
        "BUSY = 'import time\\nwhile time.process_time() < {}: pass\\nprint(1, flush=True)\\n{}'\n"
        "def test_a_child_that_ended():\n"
        "    subprocess.run([sys.executable, '-c', BUSY.format(0.3, '')])\n"
        "def test_a_child_that_lives():\n"
        "    child = subprocess.Popen([sys.executable, '-c', BUSY.format(0.3, 'input()')],\n"
        "        stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "    child.stdout.readline()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "1",
        "--rootdir=.",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(times.ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(written.read_text())
    assert found["files"]["test_child.py"]["cpu"] >= 0.6
    assert found["slowest"]["test_child.py::test_a_child_that_ended"]["cpu"] >= 0.3
