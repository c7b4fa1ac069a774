"""The rdkafka crate for Rust, which builds its own librdkafka: see rust/src/main.rs."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from tests.beside.programs import output_of
from tests.conformance.kstore_broker import KstoreBroker
from tests.works_with.environments import CACHE

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(2400)]

SOURCES = Path(__file__).parent / "rust"
RECORDS = 200  # as in main.rs


def program() -> Path:
    """The program, built first if need be; the build folder is kept."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is missing: install Rust")
    folder = CACHE / "rust"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [cargo, "build", "--quiet", "--locked", "--release", "--target-dir", folder]
        output_of(command, cwd=SOURCES, timeout_s=1800)
    return folder / "release" / "works-with-rdkafka"


def test_rdkafka(tmp_path: Path) -> None:
    """Headers, lz4, a group whose second member continues where the first one stopped, and a
    transaction that commits the group's offsets after one that is aborted.
    """
    built, name = program(), f"rust-{uuid4().hex[:8]}"
    with KstoreBroker(tmp_path) as broker:
        written = output_of([built, broker.bootstrap, f"{name}-in", f"{name}-out"], timeout_s=300)
    moved = json.loads(written)
    assert len(moved) == len(set(moved)) == RECORDS // 2
    assert set(moved) < set(range(RECORDS))
