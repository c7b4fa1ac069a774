"""Builds the Go programs in go/. Without Go, tests that need one are skipped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "go"


def build(package: str, folder: Path) -> Path:
    """The built program. Go's own module proxy provides the modules, once."""
    reason = _missing_go()
    if reason:
        pytest.skip(reason)
    built = folder / "program"
    done = subprocess.run(
        ["go", "build", "-o", str(built), package],
        check=False,
        cwd=SOURCES,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return built


def _missing_go() -> str:
    """Why a program cannot be built here; empty: it can."""
    if not shutil.which("go"):
        return "no `go` on the PATH"
    wanted = re.search(r"^go (\d+)\.(\d+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    said = subprocess.run(["go", "version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    assert wanted
    assert found
    if tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        return f"Go {wanted[1]}.{wanted[2]} or newer is needed, there is {found[0]}"
    return ""
