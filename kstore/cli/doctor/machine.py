"""The machine of one broker, as its settings describe it: its log dirs, limits, file systems and
ports. It works whether or not the broker runs.
"""

from __future__ import annotations

import contextlib
import os
import resource
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from kstore.config import BrokerConfig

__all__ = ["Machine", "Mount", "existing_folder", "mount_of", "read_mounts"]


class Mount(NamedTuple):
    """A mounted file system."""

    folder: str
    kind: str
    options: frozenset[str]
    source: str


class Machine:
    """This machine, for a broker with these settings."""

    def __init__(self, config: BrokerConfig, path: str) -> None:
        self.config = config
        self.path = path
        """The path of the settings file."""

    @cached_property
    def log_dirs(self) -> list[str]:
        """The broker's log dirs; they need not exist."""
        return [os.path.abspath(each) for each in self.config["log.dirs"]]

    @cached_property
    def pid(self) -> int | None:
        """The process that uses the first log dir; None if none does."""
        return holder(self.log_dirs[0])

    @cached_property
    def mounts(self) -> list[Mount]:
        """All file systems."""
        return read_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))

    def open_files(self) -> tuple[int, int]:
        """How many files the broker's process has open (0 if none runs), and how many it may
        open.
        """
        if self.pid is None:
            # The broker raises its soft limit to the hard one.
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            return 0, 1 << 20 if hard == resource.RLIM_INFINITY else hard
        limits = Path(f"/proc/{self.pid}/limits").read_text(encoding="utf-8")
        row = next(line for line in limits.splitlines() if line.startswith("Max open files"))
        soft = row.removeprefix("Max open files").split()[0]
        return len(os.listdir(f"/proc/{self.pid}/fd")), int(soft) if soft.isdigit() else 1 << 20

    def segment_files(self) -> int:
        """The number of segment files in the log dirs."""
        return sum(1 for each in self.log_dirs for _ in Path(each).glob("*/*.log"))

    def memory_maps(self) -> tuple[int, int]:
        """The number of memory maps of the broker's process (0 if none runs), and the limit."""
        limit = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
        if self.pid is None:
            return 0, limit
        maps = Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8", errors="replace")
        return maps.count("\n"), limit


def holder(directory: str) -> int | None:
    """The running process that the lock file names; None if there is none."""
    from kstore.cli.cluster_folder import is_locked

    lock = Path(directory) / ".lock"
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = int(lock.read_text(encoding="utf-8").split()[1])  # "pid 123 (...)"
        if is_locked(lock) and Path(f"/proc/{found}").exists():
            return found
    return None


def existing_folder(path: str) -> str:
    """The folder itself, or its nearest existing parent."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def read_mounts(text: str) -> list[Mount]:
    """Read /proc/self/mountinfo."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) < 6 or len(more) < 3:
            continue
        folder = fields[4].encode().decode("unicode_escape")  # \040 is a space
        options = frozenset((*fields[5].split(","), *more[2].split(",")))
        found.append(Mount(folder, more[0], options, more[1]))
    return found


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The file system of a folder: the longest mount point above it, the last one of several."""
    real = os.path.realpath(path)
    best: Mount | None = None
    for mount in mounts:
        inside = os.path.commonpath([real, mount.folder]) == mount.folder
        if inside and (best is None or len(mount.folder) >= len(best.folder)):
            best = mount
    return best
