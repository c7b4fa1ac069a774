"""Runs the pytest-benchmark cases of test_micro.py and converts their medians to rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.measure import Settings
from bench.report import Row

__all__ = ["rows"]


def rows(settings: Settings) -> list[Row]:
    """One row per case: the median of one call, in microseconds."""
    target = settings.scratch / "micro.json"
    command = [sys.executable, "-m", "pytest", str(Path(__file__).with_name("test_micro.py"))]
    command += ["-q", f"--benchmark-json={target}", f"--basetemp={settings.scratch / 'tmp'}"]
    command += ["--benchmark-max-time=0.2"] if settings.quick else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"bench/test_micro.py failed:\n{done.stdout[-3000:]}")
    cases = json.loads(target.read_text())["benchmarks"]
    return [
        Row("micro", case["name"].removeprefix("test_").replace("_", " "),
            case["stats"]["median"] * 1e6, "us")
        for case in cases
    ]  # fmt: skip
