"""The interface to the outside world: time, randomness and the file system. Each part can be
replaced.

Tests and the simulation pass their own; all other code uses ``SystemEnv``. Nothing here knows what
a log is. LMDB is the exception: it opens and maps its own files.
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
    "SystemRandom", "sync_data", "sync_dir",
]  # fmt: skip

F = TypeVar("F")


def sync_data(descriptor: int) -> None:
    """Wait until the disk has a file's data. On macOS, fsync leaves the data in the disk's
    cache.
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # a file system that does not support it
            os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


def sync_dir(path: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Clock(Protocol):
    """Wall time for timestamps, and a monotonic time for intervals."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some point; monotonic."""
        ...


class Random(Protocol):
    """The source of ids and jitter."""

    def uuid(self) -> uuid.UUID:
        """A new random id."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class FileSystem(Protocol):
    """The file-system calls of a log. Methods raise OSError as the os module does."""

    def open_segment(
        self, factory: Callable[..., F], path: str, *, writable: bool, create: bool
    ) -> F:
        """Open a segment file by ``factory(path, writable=.., create=..)``, or a replacement for
        it.
        """
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory."""
        ...

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Create a directory, and its parents with the usual mode. An existing directory is no
        error.
        """
        ...

    def replace(self, source: str, target: str) -> None:
        """Rename a file; an existing target is replaced."""
        ...

    def unlink(self, path: str) -> None:
        """Delete a file."""
        ...

    def truncate(self, path: str, size_bytes: int) -> None:
        """Truncate a file."""
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
        """The content of a small file."""
        ...

    def write_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Write a small file so that it has either its old or its new content after a crash.
        ``durable``: return when the new content is durable.
        """
        ...

    def overwrite(self, path: str, content: bytes) -> None:
        """Overwrite the beginning of an existing small file, in place."""
        ...


class Env(Protocol):
    """The clock, the randomness and the file system."""

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
        """Seconds since some point; monotonic."""
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
        """Create a directory, and its parents with the usual mode. An existing directory is no
        error.
        """
        try:
            os.mkdir(path, mode)
        except OSError:  # it exists, or its parents do not
            os.makedirs(path, mode, exist_ok=True)

    def replace(self, source: str, target: str) -> None:
        """Rename a file; an existing target is replaced."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Delete a file."""
        os.unlink(path)

    def truncate(self, path: str, size_bytes: int) -> None:
        """Truncate a file."""
        os.truncate(path, size_bytes)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        sync_dir(path)

    def file_size(self, path: str) -> int:
        """A file's size in bytes."""
        return os.stat(path).st_size

    def modified_ns(self, path: str) -> int:
        """When a file, or the names in a directory, last changed."""
        return os.stat(path).st_mtime_ns

    def read_file(self, path: str) -> bytes:
        """The content of a small file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(descriptor, 65536):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def overwrite(self, path: str, content: bytes) -> None:
        """Overwrite the beginning of an existing small file, in place."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    def write_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Write a small file so that it has either its old or its new content after a crash.
        ``durable``: return when the new content is durable.
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
    """The real system. Each part can be replaced."""

    def __init__(
        self,
        clock: Clock | None = None,
        random: Random | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.fs: FileSystem = fs or SystemFileSystem()
