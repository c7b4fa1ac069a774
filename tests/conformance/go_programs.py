"""Builds the Go programs in go/. Without Go, tests that need one are skipped."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.beside.programs import output_of

SOURCES = Path(__file__).parent / "go"


def build(package: str, folder: Path) -> Path:
    """The built program. Go's own module proxy provides the modules, once."""
    reason = _missing_go()
    if reason:
        pytest.skip(reason)
    built = folder / "program"
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    command = ["go", "build", "-o", built, package]
    output_of(command, cwd=SOURCES, env=environment, timeout_s=280)
    return built


def _missing_go() -> str:
    """Why a program cannot be built here; empty: it can."""
    if not shutil.which("go"):
        return "no `go` on the PATH"
    wanted = re.search(r"^go (\d+)\.(\d+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    found = re.search(r"go(\d+)\.(\d+)", output_of(["go", "version"]))
    assert wanted
    assert found
    if tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        return f"Go {wanted[1]}.{wanted[2]} or newer is needed, there is {found[0]}"
    return ""
