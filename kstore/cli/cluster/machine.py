"""Facts about the machine for `kstore cluster start --brokers auto`: how many cores this process
may use, and a name for the machine. It reads; it starts nothing.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["machine_name", "usable_cores"]

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MACHINE_ID = Path("/etc/machine-id")
NOBODYS_NAMES = frozenset({"", "localhost", "localhost.localdomain"})


def usable_cores() -> int:
    """The number of cores that the scheduler gives this process. If its cgroups (a container's
    limit of CPU time) allow fewer whole cores, that number; at least 1.
    """
    known = hasattr(os, "sched_getaffinity")  # macOS cannot bind a process to cores
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    limits = [limit for folder in _own_cgroups() if (limit := _limit(folder)) is not None]
    return max(1, int(min([cores, *limits])))


def machine_name() -> str:
    """The host name, or the machine's id if the host name is one that many machines have."""
    name = socket.gethostname()
    if name in NOBODYS_NAMES and MACHINE_ID.exists():
        name = MACHINE_ID.read_text().strip()
    return name


def _own_cgroups() -> list[Path]:
    """The folders of this process's cgroups and of their parents; each of them limits the process.
    Version 2 has one tree, version 1 one for each kind of limit.
    """
    found: list[Path] = []
    if not OWN_CGROUP.exists():
        return found
    for line in OWN_CGROUP.read_text().splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0" and not kinds:
            root = CGROUPS
        elif "cpu" in kinds.split(","):
            root = CGROUPS / "cpu"
        else:
            continue
        own = root / path.lstrip("/")
        found += [own, *(each for each in own.parents if each.is_relative_to(root))]
    return found


def _limit(folder: Path) -> float | None:
    """The CPU time of the cgroup, in cores; None for no limit."""
    if (limit := folder / "cpu.max").exists():
        quota, period = limit.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    if (limit := folder / "cpu.cfs_quota_us").exists():
        microseconds = int(limit.read_text())
        period = (folder / "cpu.cfs_period_us").read_text()
        return None if microseconds < 0 else microseconds / int(period)
    return None
