"""The tests of the five documents fail where kstore is wrong: each planted bug is found by the
tests that the table names, which pass without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents.planted_bugs import BUGS

ROOT = Path(__file__).parents[2]
PLANTED = Path(__file__).parent / "planted"
SOME_FAILED = 1
"""pytest's exit code; another one says that nothing was tested."""


@pytest.mark.parametrize("name", BUGS)
def test_what_a_planted_bug_replaces_is_there(name: str) -> None:
    replaced = []

    def put(where: Any, attribute: str, bug: Any) -> None:
        assert hasattr(where, attribute), (where, attribute)
        replaced.append(attribute)

    BUGS[name].plant(put)
    assert replaced


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("name", "test"), [(name, test) for name, bug in BUGS.items() for test in bug.tests]
)
def test_a_planted_bug_is_found(name: str, test: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--timeout=60",
         "-p", "no:cacheprovider", "-p", "no:rerunfailures", test],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{PLANTED}:{ROOT}", "KSTORE_PLANTED_BUG": name},
        capture_output=True, text=True, timeout=270, check=False,
    )  # fmt: skip
    assert done.returncode == SOME_FAILED, done.stdout[-4000:] + done.stderr[-2000:]
