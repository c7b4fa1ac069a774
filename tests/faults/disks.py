"""Disks with faults, for real broker processes: one that a freeze holds still (a loop device, for
root), one whose device hangs while its page cache still takes writes (a loop device on that), and
one below a library that the process loads (LD_PRELOAD), which blocks or fails calls.

A test gives the process ``disk.environment`` and a log dir below ``disk.folder``.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

SIZE_MB = 128
DEVICE_MB = 64
LIBRARY_SOURCE = Path(__file__).with_name("disk_faults.c")
WRITES = "wsfn"
"""Of the library's letters (disk_faults.c) those that change something, as a freeze holds them."""
AT_THE_END = 'cat >/dev/null; fsfreeze -u "$0"; umount -l "$0"'
"""Of a shell whose input ends with this process, however that ends."""


class Disk(ABC):
    """A folder whose disk can hang."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: Mapping[str, str] = {}
        """What a process that is to meet the faults has in its environment."""

    @abstractmethod
    def freeze(self) -> None:
        """From now on every change below the folder waits."""

    @abstractmethod
    def thaw(self) -> None:
        """Everything continues, also the calls that waited. Nothing happens if
        nothing was frozen.
        """

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The disk hangs inside this ``with``."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


class FrozenDisk(Disk):
    """A separate ext4 file system on a loop device."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._guard: subprocess.Popen[bytes] | None = None

    def mount(self, image: Path, size_mb: int = SIZE_MB) -> str | None:
        """Make the file system in a file and mount it; returns the reason if that fails."""
        if os.geteuid() != 0:
            return "only root can mount a disk"
        for tool in ("mkfs.ext4", "mount", "fsfreeze"):
            if shutil.which(tool) is None:
                return f"{tool} is missing"
        with open(image, "wb") as file:
            file.truncate(size_mb << 20)
        for command in (
            ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)],
            ["mount", "-o", "loop", str(image), str(self.folder)],
        ):
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode:
                return f"{command[0]}: {done.stderr.decode().strip()}"
        # Ctrl-C ends this process's group, and what is frozen would stay so for ever.
        self._guard = subprocess.Popen(
            ["sh", "-c", AT_THE_END, str(self.folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return None

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "-f", str(self.folder)], check=True, capture_output=True)

    def thaw(self) -> None:
        subprocess.run(["fsfreeze", "-u", str(self.folder)], check=False, capture_output=True)

    def unmount(self) -> None:
        """Thaw it and remove it."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()


class HangingDevice(Disk):
    """A file system whose device hangs when it is frozen: its image is on a disk that is frozen.
    Writes into the page cache continue, until the journal or the write-back needs the device.
    """

    def __init__(self, folder: Path, below: FrozenDisk) -> None:
        super().__init__(folder)
        self._below = below
        self._upper = FrozenDisk(folder)

    def mount(self) -> str | None:
        """Make the file system on the disk below; returns the reason if that fails."""
        return self._upper.mount(self._below.folder / "image", DEVICE_MB)

    def freeze(self) -> None:
        """See Disk. Written data reaches the device first: the journal starts again, and its next
        commit is five seconds away.
        """
        os.sync()
        self._below.freeze()

    def thaw(self) -> None:
        self._below.thaw()

    def unmount(self) -> None:
        """Thaw it and remove it; the disk below stays."""
        self.thaw()
        self._upper.unmount()


class FaultyDisk(Disk):
    """A folder below which the calls of processes with this ``environment`` block or fail."""

    def __init__(self, folder: Path, work: Path) -> None:
        """``work``: the folder for the compiled library and the file that controls it."""
        super().__init__(folder)
        self._control = work / "disk-faults"
        library = work / "disk_faults.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", library, LIBRARY_SOURCE, "-ldl"], check=True
        )
        self.environment = {
            "LD_PRELOAD": str(library),
            "DISK_FAULTS_FOLDER": str(folder),
            "DISK_FAULTS_CONTROL": str(self._control),
        }

    def freeze(self) -> None:
        self.block(WRITES)

    def block(self, kinds: str) -> None:
        """Have these kinds of calls wait: letters of disk_faults.c."""
        self._say(f"0 {kinds}")

    def fail(self, number: int = errno.EIO, kinds: str = WRITES) -> None:
        """Have these kinds of calls fail with an errno."""
        self._say(f"{number} {kinds}")

    def thaw(self) -> None:
        """See Disk; what failed works again, too."""
        with suppress(FileNotFoundError):
            self._control.unlink()

    def _say(self, what: str) -> None:
        unfinished = self._control.with_suffix(".tmp")
        unfinished.write_text(what)
        unfinished.replace(self._control)  # at once: a call may check at any time


Mounted = TypeVar("Mounted", FrozenDisk, HangingDevice)


def _mounted(made: Mounted, *image: Path) -> Iterator[Mounted]:
    made.folder.mkdir()
    problem = made.mount(*image)
    if problem is not None:
        pytest.skip(f"a disk to freeze can't be mounted here: {problem}")
    try:
        yield made
    finally:
        made.unmount()


@pytest.fixture
def frozen_disk(tmp_path: Path) -> Iterator[FrozenDisk]:
    """A disk that `freeze` holds still; skips where none can be mounted (SKIPPED.md)."""
    yield from _mounted(FrozenDisk(tmp_path / "frozen-disk"), tmp_path / "frozen-disk.img")


@pytest.fixture
def hanging_device(tmp_path: Path, frozen_disk: FrozenDisk) -> Iterator[HangingDevice]:
    """A disk whose device `freeze` has hang; skips as `frozen_disk` does."""
    yield from _mounted(HangingDevice(tmp_path / "hanging-device", frozen_disk))


@pytest.fixture
def faulty_disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    """A disk whose faults a library makes; needs no rights."""
    folder = tmp_path / "faulty-disk"
    folder.mkdir()
    made = FaultyDisk(folder, tmp_path)
    try:
        yield made
    finally:
        made.thaw()


@pytest.fixture(params=[pytest.param("frozen_disk", marks=pytest.mark.thorough), "faulty_disk"])
def disk(request: pytest.FixtureRequest) -> Disk:
    """One of the two disks that can hang."""
    return request.getfixturevalue(request.param)
