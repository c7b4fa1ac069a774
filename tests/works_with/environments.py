"""Runs a program of a framework in a virtual environment that has the framework, and fetches
programs that a package registry has as an archive.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.beside.programs import output_of

PROGRAMS = Path(__file__).parent / "programs"
CACHE = Path.home() / ".cache" / "kstore" / "works-with"


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of the environment with these requirements, which is created if necessary."""
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
            output_of(command, timeout_s=900)
        complete.write_text(wanted)
    return python


def unpacked(artifact: str) -> Path:
    """The folder with the files of this archive, "group:name:version:type:classifier" as Maven
    has it; it is fetched first if need be.
    """
    maven = shutil.which("mvn")
    assert maven is not None, "there is no `mvn` to fetch archives with"
    _, name, version, *_ = artifact.split(":")
    folder = CACHE / f"{name}-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                target = Path(scratch, "files")
                command = [maven, "-q", "-B", "dependency:unpack", f"-Dartifact={artifact}",
                           f"-DoutputDirectory={target}"]  # fmt: skip
                output_of(command, cwd=scratch, timeout_s=900)
                target.rename(folder)
    return folder


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
