"""Small disks for tests of a full disk: each is a file system in memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A new folder with this much space ("64m"). Skips the test if it cannot be mounted
    (SKIPPED.md).
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can't be mounted by this user here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk of this folder to the last byte, with a file that is returned."""
    filler = folder / "filler"
    size = 1 << 20
    with open(filler, "ab", buffering=0) as file:
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    return filler
