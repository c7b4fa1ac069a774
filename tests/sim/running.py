"""Runs `python -m tests.sim` for tests: a process of its own, since a simulation depends on how
Python hashes strings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_simulations(*arguments: str) -> list[dict[str, Any]]:
    """A report per seed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--json", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-4000:]
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert reports, "no seed was run:\n" + done.stderr[-4000:]
    return reports
