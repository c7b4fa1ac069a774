"""A folder of backups: lists backups, locks the folder, and deletes backups.

<folder>/<name>.backup        a manifest for each backup
<folder>/objects/ab/cdef...   the pool that they share
<folder>/.lock                of the process that makes or removes a backup
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kstore.backup.errors import BackupError
from kstore.backup.manifest import SUFFIX, Manifest, read_manifest
from kstore.backup.objects import ObjectPool
from kstore.env import sync_dir
from kstore.private_files import PRIVATE_FILE, PRIVATE_FOLDER

__all__ = ["BackupFolder"]


class BackupFolder:
    """The backups below one path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pool = ObjectPool(path / "objects")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Create the folder if it does not exist, and lock it against other writers."""
        self._refuse_foreign()
        self.path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT
        with open(os.open(self.path / ".lock", flags, PRIVATE_FILE), "r+b") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupError(
                    f"another process is writing to {self.path}: wait until it is done"
                ) from None
            self.pool.make()
            for unfinished in self.path.glob(f"*{SUFFIX}.unfinished"):
                unfinished.unlink()
            yield

    def _refuse_foreign(self) -> None:
        if self.path.is_dir() and any(self.path.iterdir()) and not self.pool.path.is_dir():
            raise BackupError(
                f"{self.path} is not empty, and has no backups: use an empty or a new folder"
            )

    def names(self) -> list[str]:
        """The names of all backups, the oldest first. Raises BackupError if this is not a folder of
        backups.
        """
        if not self.pool.path.is_dir():
            raise BackupError(f"{self.path} has no backups: create one with `kstore backup create`")
        return sorted(path.name.removesuffix(SUFFIX) for path in self.path.glob(f"*{SUFFIX}"))

    def manifest(self, name: str | None = None) -> Manifest:
        """One backup, by default the newest. Raises BackupError."""
        names = self.names()
        if not names:
            raise BackupError(f"{self.path} has no finished backup")
        if name is not None and name not in names:
            raise BackupError(f"{self.path} has no backup {name}: it has {', '.join(names)}")
        return read_manifest(self.path / ((name or names[-1]) + SUFFIX))

    def newest_good(self) -> Manifest | None:
        """The newest backup that can be read, as the base of the next one."""
        for name in reversed(self.names()):
            try:
                return self.manifest(name)
            except BackupError:
                continue  # `list` and `verify` report it; a new backup ignores it
        return None

    def delete(self, name: str) -> int:
        """Delete a backup and the parts that no other backup needs; returns the number of freed
        bytes. Raises BackupError if another backup can't be read, because the parts that it needs
        are unknown.
        """
        if name not in self.names():
            raise BackupError(f"{self.path} has no backup {name}: it has {', '.join(self.names())}")
        wanted = {
            part.object
            for other in self.names()
            if other != name
            for part in self.manifest(other).parts()
        }
        (self.path / (name + SUFFIX)).unlink()
        sync_dir(self.path)
        return self.pool.remove_all_but(wanted)
