"""`make run` with its own broker: load, compare, stop; and a broker that cannot start."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

LINES = 50


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file to load."""
    made = tmp_path / "lines.txt"
    made.write_text("".join(f"line {number}\n" for number in range(LINES)))
    return made


def run(folder: Path, source: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kstore.pipeline.jobs.run", "--data", str(folder / "data")]
    return subprocess.run(
        [*command, "--file", str(source), "--once", *more],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_file_is_loaded_compared_and_the_broker_stopped(tmp_path: Path, source: Path) -> None:
    done = run(tmp_path, source, "--port", "0")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("Broker    kstore on localhost:")
    assert "Compared  every record: key, value, offset and count are equal" in said
    assert said[-1] == f"Stopped   the broker, cleanly; the data stays in {tmp_path / 'data'}"


@pytest.mark.slow
def test_a_broker_that_can_not_start_is_told_with_its_own_words(
    tmp_path: Path, source: Path
) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(tmp_path, source, "--port", str(port))
    assert done.returncode == 1
    first, last = done.stderr.splitlines()
    assert f"{port} is in use by another process" in first
    assert last == "kstore: the broker did not start (exit code 1); see above"
