"""The disk under both brokers: its rate without them, its free space, and how to drop a file from
the page cache.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Limits", "drop_from_cache", "limits", "require_room"]

BLOCK_BYTES = 1 << 20


class Limits(NamedTuple):
    """MB/s of one file, from its first byte to its last."""

    write: float
    """Written in order, and synced at the end."""
    read: float
    """Read in order; nothing is in the page cache."""


def limits(folder: Path, size_bytes: int) -> Limits:
    """Measure them with a file in the folder, which is removed."""
    path = folder / "limit"
    block = random.Random(1).randbytes(BLOCK_BYTES)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        begin = time.monotonic()
        with path.open("wb", buffering=0) as file:
            for _ in range(size_bytes // BLOCK_BYTES):
                file.write(block)
            os.fdatasync(file.fileno())
        written = time.monotonic() - begin
        drop_from_cache(path)
        begin = time.monotonic()
        with path.open("rb", buffering=0) as file:
            while file.read(BLOCK_BYTES):
                pass
        taken = time.monotonic() - begin
    finally:
        path.unlink(missing_ok=True)
    return Limits(size_bytes / written / 1e6, size_bytes / taken / 1e6)


def drop_from_cache(*paths: Path) -> None:
    """Write the files to disk and drop their pages, so that the next reader reads the disk."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def require_room(folder: Path, size_bytes: int) -> None:
    """Raise RuntimeError if the folder's disk does not have this much free space."""
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise RuntimeError(
            f"{folder} has {free / 1e9:.0f} GB of room and {size_bytes / 1e9:.0f} GB are needed: "
            "give --scratch a folder on a larger disk, or --quick"
        )
