"""Runs a program of a framework in a virtual environment that has the framework."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["environment", "run"]

PROGRAMS = Path(__file__).parent / "programs"
CACHE = Path.home() / ".cache" / "kstore" / "works-with"


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of the environment with these requirements; it is made first if need be."""
    folder = CACHE / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    python, complete = folder / "bin" / "python", folder / "requirements"
    wanted = "\n".join(requirements)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists() and complete.read_text() == wanted:
            return python
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "-q", *requirements],
        ):
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
            assert done.returncode == 0, done.stderr
        complete.write_text(wanted)
    return python


def run(
    python: Path,
    program: str,
    *arguments: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 150,
) -> str:
    """What the program writes, to both streams; it must end well."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KSTORE_"))}
    done = subprocess.run(
        [str(python), str(PROGRAMS / program), *arguments],
        cwd=folder, env=clean | dict(env or {}), check=False, timeout=timeout_s, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout
