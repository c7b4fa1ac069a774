"""Simulated disks: real files in a temporary folder, and for each the number of synced bytes. A
crash keeps every file as it is. A power loss cuts segments anywhere after the synced bytes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from random import Random
from typing import Any

from kstore._fast.log.segment_file import SegmentFile
from kstore.env import SystemFileSystem


class Disk:
    """The disk of one host."""

    def __init__(self, folder: str, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.synced: dict[str, int] = {}
        """Path to the size up to which the file is on the disk."""
        self.full = False
        self.boots = 0
        self.files = DiskFiles(self)
        os.makedirs(folder, exist_ok=True)

    def boot_id(self) -> bytes:
        """16 bytes that change when the machine is started again."""
        return self.boots.to_bytes(16, "big")

    def snapshot(self) -> str:
        copy = self.folder + ".copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("*-lock"))
        return copy

    def replace_by(self, copy: str, synced: dict[str, int]) -> None:
        """Go back to a snapshot: what was written and synced since is lost."""
        self.synced = synced
        shutil.rmtree(self.folder)
        os.rename(copy, self.folder)

    def lose_unsynced(self) -> int:
        """Cut what the machine had not written to disk; returns the number of lost bytes."""
        self.boots += 1
        lost = 0
        for directory, _, names in os.walk(self.folder):
            for name in sorted(names):
                if name.endswith(".log"):
                    lost += self._cut(os.path.join(directory, name))
        return lost

    def _cut(self, path: str) -> int:
        size = os.path.getsize(path)
        kept = min(self.synced.get(path, 0), size)
        if kept < size:
            choice = self.random.random()
            if choice < 0.5:
                kept += self.random.randrange(0, size - kept + 1)
            elif choice < 0.6:
                kept = size
            os.truncate(path, kept)
        self.synced[path] = kept
        return size - kept


class DiskFiles(SystemFileSystem):
    """The file system of the logs of one host."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def open_segment(
        self, factory: Callable[..., Any], path: str, *, writable: bool, create: bool
    ) -> Any:
        """A segment file whose syncs are recorded."""
        if factory is not SegmentFile:
            return factory(path, writable=writable, create=create)
        file = _SimSegmentFile(path, writable=writable, create=create)
        file.disk = self.disk
        return file

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        synced = self.disk.synced
        for path in [p for p in synced if p == source or p.startswith(source + os.sep)]:
            synced[target + path[len(source) :]] = synced.pop(path)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.disk.synced.pop(path, None)

    def fsync_dir(self, path: str) -> None:
        """Names are never lost in this simulation."""


class _SimSegmentFile(SegmentFile):
    """A segment file that records what was synced and may find the disk full."""

    disk: Disk

    def append(self, data: Any) -> int:
        if self.disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        return super().append(data)

    def sync(self) -> int:
        self.disk.synced[self.path] = max(self.disk.synced.get(self.path, 0), self.size_bytes)
        return super().sync()

    def truncate(self, size_bytes: int) -> int:
        result = super().truncate(size_bytes)
        synced = self.disk.synced
        synced[self.path] = min(synced.get(self.path, 0), size_bytes)
        return result
