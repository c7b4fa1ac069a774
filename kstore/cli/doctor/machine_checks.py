"""Checks of the machine that a broker runs on: its limits and its disks."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator

from kstore.cli.doctor.clock_check import CLOCK_ABOUT, clock
from kstore.cli.doctor.findings import Check, Finding, Limits, Severity
from kstore.cli.doctor.machine import Machine, existing_folder, mount_of
from kstore.env import sync_data

__all__ = ["MACHINE_CHECKS", "free_space", "sync_times_ms"]

ERROR, WARNING = Severity.ERROR, Severity.WARNING
SYNCS = 8
SYNC_BYTES = 4096
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs"})
IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def open_files(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """Each connection uses a file descriptor, and so does each segment that is read or written."""
    used, limit = machine.open_files()
    segments = machine.segment_files()
    of = f"process {machine.pid} has {used:,} files open" if used else "no broker runs here"
    evidence = f"limit {limit:,}; {of}; the log dirs hold {segments:,} segment files"
    if used > 0.8 * limit or segments > limit:
        meaning = (
            "The broker refuses connections and new partitions when it can open no more files."
        )
        yield Finding(ERROR, "open files", evidence, meaning, _RAISE_FILES)
    elif limit < limits.open_files:
        meaning = f"A broker should be allowed to open {limits.open_files:,} files or more."
        yield Finding(WARNING, "open files", evidence, meaning, _RAISE_FILES)


_RAISE_FILES = (
    "ulimit -Hn 1000000 before the start (systemd: LimitNOFILE=1000000), then restart the broker"
)


def memory_maps(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """LMDB, libraries and read segments are mapped."""
    used, limit = machine.memory_maps()
    evidence = f"vm.max_map_count is {limit:,}" + (f", {used:,} are in use" if used else "")
    fix = "sysctl -w vm.max_map_count=262144"
    if used > 0.8 * limit:
        meaning = "The broker exits when the system refuses another memory map."
        yield Finding(ERROR, "memory maps", evidence, meaning, fix)
    elif limit < limits.memory_maps:
        meaning = f"This is below the system's usual {limits.memory_maps:,}."
        yield Finding(WARNING, "memory maps", evidence, meaning, fix)


def log_dirs(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """Whether the log dirs can be used, and who uses them."""
    devices: dict[int, str] = {}
    for path in machine.log_dirs:
        folder = existing_folder(path)
        made = folder == path
        if os.path.exists(path) and not made:
            yield Finding(ERROR, path, "it is a file", "log.dirs must name folders.", f"rm {path}")
            continue
        if not os.access(folder, os.W_OK | os.X_OK):
            yield Finding(
                ERROR, path, f"user {os.geteuid()} may not write to {folder}",
                "This user cannot start a broker with it.", f"chown {os.geteuid()} {folder}",
            )  # fmt: skip
        other = devices.setdefault(os.stat(folder).st_dev, path) if made else path
        if other != path:
            yield Finding(
                WARNING, path, f"it is on the same file system as {other}",
                "Two log dirs on one disk share its speed, and both fail with it.",
                "put each folder of log.dirs on a disk of its own, or use only one",
            )  # fmt: skip


def free_space(
    subject: str, total: int, usable: int, limits: Limits, fix: str
) -> Iterator[Finding]:
    """Free space of one volume, in bytes."""
    percent = 100 * usable / total if total > 0 else 100.0
    if percent >= limits.free_percent:
        return
    severity = ERROR if percent < limits.free_percent / 3 else WARNING
    evidence = f"{usable / 2**30:.1f} GiB of {total / 2**30:.1f} GiB are free ({percent:.1f} %)"
    meaning = "When the disk is full, writes fail and its partitions go offline."
    yield Finding(severity, subject, evidence, meaning, fix)


def disk_space(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """Free bytes and free inodes of each log dir's file system."""
    for path in machine.log_dirs:
        found = os.statvfs(existing_folder(path))
        fix = f"du -s {path}/* | sort -n, then lower retention.ms or retention.bytes of the largest"
        total, usable = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        yield from free_space(path, total, usable, limits, fix)
        if found.f_files and found.f_favail < found.f_files * 0.01:
            yield Finding(
                ERROR, path, f"{found.f_favail:,} of {found.f_files:,} inodes are free",
                "A new segment needs an inode.", f"find {path} -xdev | wc -l",
            )  # fmt: skip


def sync_times_ms(folder: str) -> list[float]:
    """How long each of several forced writes of 4 KB takes. The file has no name if the file system
    allows that.
    """
    times = []
    with tempfile.TemporaryFile(dir=folder, prefix=".kstore-doctor-", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.monotonic()
            file.write(bytes(SYNC_BYTES))
            sync_data(file.fileno())
            times.append((time.monotonic() - began) * 1000)
    return times


def disk_speed(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """The median of several forced writes."""
    for path in machine.log_dirs:
        folder = existing_folder(path)
        if not os.access(folder, os.W_OK | os.X_OK):
            continue  # log-dirs reports it
        times = sync_times_ms(folder)
        median = statistics.median(times)
        if median > limits.sync_ms:
            yield Finding(
                WARNING, path,
                f"{SYNCS} forced writes of 4 KB took {median:.1f} ms each (the slowest "
                f"{max(times):.1f} ms)",
                "With kstore.flush.policy=always each write waits this long. With any policy, a "
                "disk this slow makes producers wait when the page cache is full.",
                f"iostat -x 1 shows what else uses the disk of {folder}",
            )  # fmt: skip


def file_systems(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """The file system of each log dir."""
    for path in machine.log_dirs:
        mount = mount_of(existing_folder(path), machine.mounts)
        if mount is None:
            continue
        evidence = f"{mount.source} ({mount.kind}) is mounted on {mount.folder}"
        fix = "set log.dirs to a folder on a local disk (ext4 or xfs)"
        if "ro" in mount.options:
            meaning = "It is read-only: the broker cannot start."
            yield Finding(ERROR, path, evidence, meaning, f"mount -o remount,rw {mount.folder}")
        if mount.kind in NETWORK or mount.kind.startswith("fuse"):
            meaning = "LMDB and locks need a local file system. The index can be damaged there."
            yield Finding(ERROR, path, evidence, meaning, fix)
        elif mount.kind in IN_MEMORY:
            meaning = "It is in memory: all records are lost when the machine restarts."
            yield Finding(WARNING, path, evidence, meaning, fix)
        elif mount.kind == "overlay":
            meaning = (
                "It is a container's own layer: the records are lost when the container is removed."
            )
            yield Finding(WARNING, path, evidence, meaning, "mount a volume there")


MACHINE_CHECKS: tuple[Check[Machine], ...] = (
    Check("open-files", "limit on open files", open_files),
    Check("memory-maps", "vm.max_map_count", memory_maps),
    Check("clock", CLOCK_ABOUT, clock),
    Check("log-dirs", "permissions and paths of log.dirs", log_dirs),
    Check("disk-space", "free space of log.dirs", disk_space),
    Check("disk-speed", "forced writes to log.dirs", disk_speed),
    Check("file-systems", "file systems of log.dirs", file_systems),
)
