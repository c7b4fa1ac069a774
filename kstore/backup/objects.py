"""The pool of a backup folder: pieces of files, each named by its SHA-256, written once and never
changed. It does not know what the pieces are.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kstore.backup.errors import BackupError
from kstore.env import sync_dir
from kstore.private_files import PRIVATE_FILE, PRIVATE_FOLDER

__all__ = ["ObjectPool", "Part", "telling_full"]

UNFINISHED = "unfinished"
READ_BYTES = 4 << 20
FULL = {errno.ENOSPC, errno.EDQUOT}


class Part(NamedTuple):
    """A piece of a file: its name in the pool, and its size."""

    object: str
    bytes: int


class ObjectPool:
    """The folder ``objects`` of a backup folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written_bytes = 0
        self._changed: set[Path] = set()

    def make(self) -> None:
        """Create the folder if it does not exist, and delete unfinished files of an earlier run."""
        self.path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        (self.path / UNFINISHED).unlink(missing_ok=True)
        self.written_bytes = 0

    def put(self, pieces: Iterable[bytes | memoryview]) -> Part:
        """Store the content of these pieces; it is durable after ``sync``."""
        digest, size = hashlib.sha256(), 0
        unfinished = self.path / UNFINISHED
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(unfinished, flags, PRIVATE_FILE), "wb", buffering=0) as file:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                _write(file.fileno(), piece)
            os.fsync(file.fileno())
        part = Part(digest.hexdigest(), size)
        target = self._place(part.object)
        # Also if it exists: a run that was killed may have stored it, and not synced the folders.
        self._changed |= {self.path, target.parent}
        if target.exists() and target.stat().st_size == size:
            unfinished.unlink()
            return part
        target.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        unfinished.rename(target)
        self.written_bytes += size
        return part

    def sync(self) -> None:
        """Make the names of all stored pieces durable."""
        for folder in sorted(self._changed, reverse=True):
            sync_dir(folder)
        self._changed.clear()

    def read(self, part: Part) -> Iterator[bytes]:
        """The content of a part. Raises BackupError, at its end, if it differs from what was
        stored.
        """
        digest, size = hashlib.sha256(), 0
        path = self._place(part.object)
        try:
            with open(path, "rb", buffering=0) as file:
                while piece := file.read(READ_BYTES):
                    digest.update(piece)
                    size += len(piece)
                    yield piece
        except FileNotFoundError:
            raise BackupError(
                f"{path} is missing: a part of this backup was lost. Use another backup"
            ) from None
        if size != part.bytes or digest.hexdigest() != part.object:
            raise BackupError(
                f"{path} is damaged: it has {size:,} of {part.bytes:,} bytes, and its SHA-256 is "
                f"{digest.hexdigest()[:16]}... Use another backup, and check the disk"
            )

    def bytes_of(self, part: Part) -> bytes:
        """The whole content of a small part."""
        return b"".join(self.read(part))

    def has(self, part: Part) -> bool:
        """Whether the file exists with its size; does not read the content."""
        try:
            return self._place(part.object).stat().st_size == part.bytes
        except FileNotFoundError:
            return False

    def remove_all_but(self, wanted: set[str]) -> int:
        """Delete the pieces that no backup needs; returns their number of bytes."""
        freed = 0
        for folder in [each for each in self.path.iterdir() if each.is_dir()]:
            for file in folder.iterdir():
                if folder.name + file.name not in wanted:
                    freed += file.stat().st_size
                    file.unlink()
        return freed

    def _place(self, name: str) -> Path:
        return self.path / name[:2] / name[2:]


@contextmanager
def telling_full(path: Path, and_now: str) -> Iterator[None]:
    """For a full disk, raise an error that names the disk and the state of the data."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise BackupError(f"the disk of {path} is full: {and_now}") from error


def _write(descriptor: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
