"""Segment files that a snapshot may share through a hard link."""

from __future__ import annotations

import os

from kstore.private_files import PRIVATE_FILE

__all__ = ["copy_file", "is_shared", "own_file"]

COPY_BYTES = 8 << 20


def copy_file(source: str, target: str, size_bytes: int) -> None:
    """Copy the first bytes of a file to a new one, durable on return."""
    with (
        open(source, "rb") as file,
        open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "wb") as made,
    ):
        left = size_bytes
        while left > 0:
            data = file.read(min(left, COPY_BYTES))
            if not data:
                raise FileNotFoundError(2, f"{source} has become shorter", source)
            made.write(data)
            left -= len(data)
        made.flush()
        os.fsync(made.fileno())


def is_shared(path: str) -> bool:
    """Whether a snapshot has the same file, so that it must not be changed."""
    try:
        return os.stat(path).st_nlink > 1
    except FileNotFoundError:
        return False  # in the simulation, whose files are its own


def own_file(path: str, size_bytes: int) -> bool:
    """Call this before a file is truncated: if a snapshot shares it, replace it by a copy of its
    first bytes. Returns whether it was replaced; then the file must be opened again.
    """
    if not is_shared(path):
        return False
    made = path + ".cleaned"  # opening the log removes it
    if os.path.exists(made):
        os.unlink(made)
    copy_file(path, made, size_bytes)
    os.replace(made, path)
    return True
