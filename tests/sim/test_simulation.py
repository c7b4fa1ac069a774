"""Simulations with a fixed set of seeds and some fresh ones; what a seed does, it does again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str) -> list[dict[str, Any]]:
    """Run `python -m tests.sim` and return a report per seed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--json", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_good(reports: list[dict[str, Any]], *arguments: str) -> None:
    """No rule was broken; else say how to see it again."""
    for report in reports:
        again = f"python -m tests.sim --trace --seed {report['seed']} {' '.join(arguments)}"
        assert not report["violations"], f"{report['violations']}; again: {again}"
        assert report["counts"]["acknowledged"] > 50, f"hardly anything happened; {again}"


def test_one_broker_with_every_fault() -> None:
    assert_good(simulate("--seed", "0", "--seeds", "6"))


@pytest.mark.slow
def test_one_broker_with_fresh_seeds() -> None:
    seed = str(random.randrange(1000, 1 << 31))
    assert_good(simulate("--seed", seed, "--seeds", "4"))


def test_a_seed_does_the_same_again() -> None:
    first = simulate("--seed", "5", "--seconds", "8")
    again = simulate("--seed", "5", "--seconds", "8")
    assert first[0]["digest"] == again[0]["digest"]
    assert first[0]["trace"] == again[0]["trace"]
    assert first[0]["digest"] != simulate("--seed", "6", "--seconds", "8")[0]["digest"]


def test_help_shows_an_example() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "python -m tests.sim --seed 7" in shown.stdout
