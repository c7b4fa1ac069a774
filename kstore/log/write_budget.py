"""How much may be written to files before the system throttles the writer. This follows from
Linux's settings for the machine and for the process's control group.

The kernel does not throttle writers below the middle between vm.dirty_background_* and vm.dirty_*.
These are shares of the memory that can hold file data. Using half of that leaves room for other
processes.
"""

from __future__ import annotations

import os

__all__ = ["machine_budget"]

LEAST_BYTES = 16 << 20
_DEFAULT_BYTES = 256 << 20
"""The default if the system does not report it."""
_VM = "/proc/sys/vm/"
_GROUP_FILES = (
    # root of the hierarchy, its mark in /proc/self/cgroup, limit, use, row of file data
    ("/sys/fs/cgroup", "0::", "memory.max", "memory.current", ("inactive_file", "active_file")),
    (
        "/sys/fs/cgroup/memory", "memory:", "memory.limit_in_bytes", "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)  # fmt: skip


def machine_budget(shares: int = 1, root: str = "/") -> int:
    """The number of bytes that may be unwritten in each log dir, if there are this many. ``root``:
    the parent of /proc and /sys.
    """
    memory = _available_bytes(root)
    if memory is None:
        return _DEFAULT_BYTES // shares
    group = _group_bytes(root)
    scale = 1.0 if group is None or group >= memory else group / memory
    limit = _threshold(root, "dirty", memory)
    background = _threshold(root, "dirty_background", memory)
    if background >= limit:
        background = limit // 2
    return max(int(scale * (background + limit)) // 4 // shares, LEAST_BYTES)


def _threshold(root: str, name: str, memory: int) -> int:
    given = _number(root, f"{_VM}{name}_bytes")
    return given or memory * (_number(root, f"{_VM}{name}_ratio") or 10) // 100


def _available_bytes(root: str) -> int | None:
    for line in _lines(root, "/proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _group_bytes(root: str) -> int | None:
    """The memory that file data could have within the tightest limit of the process's control
    groups.
    """
    found = []
    for line in _lines(root, "/proc/self/cgroup"):
        for mount, mark, limit, use, rows in _GROUP_FILES:
            if not (line.startswith(mark) if mark == "0::" else f":{mark}" in line):
                continue
            place = line.rsplit(":", 1)[1].strip("/")
            while True:
                most = _number(root, f"{mount}/{place}/{limit}")
                if most is not None:
                    statistics = _rows(root, f"{mount}/{place}/memory.stat")
                    files = sum(statistics.get(row, 0) for row in rows)
                    used = _number(root, f"{mount}/{place}/{use}") or 0
                    found.append(max(most - used + files, 0))
                if not place:
                    break
                place = os.path.dirname(place)
    return min(found, default=None)


def _rows(root: str, path: str) -> dict[str, int]:
    pairs = (line.split() for line in _lines(root, path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _number(root: str, path: str) -> int | None:
    """The number in a file; None if there is none, or no limit."""
    lines = _lines(root, path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(root: str, path: str) -> list[str]:
    try:
        with open(root.rstrip("/") + path, encoding="ascii") as file:
            return file.read().splitlines()
    except OSError:
        return []  # of another system, or of one without control groups
