"""What the outside world is to kstore: time, randomness and the file system, each replaceable.

Tests and the simulation pass their own; everything else uses ``SystemEnv``. Nothing here knows
what a log is. LMDB's own files are the one exception: LMDB opens and maps them itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = [
    "Clock", "Env", "FileSystem", "Random", "SystemClock", "SystemEnv", "SystemFileSystem",
    "SystemRandom", "sync_data",
]  # fmt: skip

F = TypeVar("F")


def sync_data(descriptor: int) -> None:
    """Wait until the disk has a file's data. On macOS fsync leaves it in the disk's own cache."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # a file system that does not know it
            os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


class Clock(Protocol):
    """Wall time for timestamps, and a time that never goes back for intervals."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some point; never goes back."""
        ...


class Random(Protocol):
    """Where ids and jitter come from."""

    def uuid(self) -> uuid.UUID:
        """A new random id."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class FileSystem(Protocol):
    """Every file-system call that a log makes. Methods raise OSError as the os module does."""

    def open_segment(
        self, factory: Callable[..., F], path: str, *, writable: bool, create: bool
    ) -> F:
        """Open a segment file by ``factory(path, writable=.., create=..)``, or a stand-in."""
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory."""
        ...

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Make a directory, and its parents with the usual mode; fine if it is there."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Rename, over an existing target too."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut a file."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def file_size(self, path: str) -> int:
        """A file's size in bytes."""
        ...

    def modified_ns(self, path: str) -> int:
        """When a file, or the names in a directory, last changed."""
        ...

    def read_file(self, path: str) -> bytes:
        """A small file's content."""
        ...

    def write_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Write a small file so that it has either its old or its new content; durably, or when
        the system gets to it.
        """
        ...

    def overwrite(self, path: str, content: bytes) -> None:
        """Write over the beginning of a small file that is there, in place."""
        ...


class Env(Protocol):
    """The three together."""

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def random(self) -> Random:
        """Randomness."""
        ...

    @property
    def fs(self) -> FileSystem:
        """Files."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some point; never goes back."""
        return time.monotonic()


class SystemRandom:
    """The operating system's randomness."""

    def uuid(self) -> uuid.UUID:
        """A new random id."""
        return uuid.uuid4()

    def random(self) -> float:
        """A number in [0, 1)."""
        return random.random()


class SystemFileSystem:
    """The operating system's files."""

    def open_segment(
        self, factory: Callable[..., F], path: str, *, writable: bool, create: bool
    ) -> F:
        """Open a segment file by ``factory(path, writable=.., create=..)``."""
        return factory(path, writable=writable, create=create)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory."""
        return os.listdir(path)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Make a directory, and its parents with the usual mode; fine if it is there."""
        try:
            os.mkdir(path, mode)
        except OSError:  # it is there, or its parents are not
            os.makedirs(path, mode, exist_ok=True)

    def replace(self, source: str, target: str) -> None:
        """Rename, over an existing target too."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut a file."""
        os.truncate(path, size_bytes)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def file_size(self, path: str) -> int:
        """A file's size in bytes."""
        return os.stat(path).st_size

    def modified_ns(self, path: str) -> int:
        """When a file, or the names in a directory, last changed."""
        return os.stat(path).st_mtime_ns

    def read_file(self, path: str) -> bytes:
        """A small file's content."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(descriptor, 65536):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def overwrite(self, path: str, content: bytes) -> None:
        """Write over the beginning of a small file that is there, in place."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    def write_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Write a small file so that it has either its old or its new content; durably, or when
        the system gets to it.
        """
        temporary = path + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o666)
        try:
            written = os.write(descriptor, content)
            if written < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
            if durable:
                os.fsync(descriptor)
        except OSError:
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        if durable:
            self.fsync_dir(os.path.dirname(path) or ".")


class SystemEnv:
    """The real world. Parts may be replaced one by one."""

    def __init__(
        self,
        clock: Clock | None = None,
        random: Random | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.fs: FileSystem = fs or SystemFileSystem()
