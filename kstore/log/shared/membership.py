"""The processes that have a log dir open for writing: one exclusively, or several that share it.
One of those that share it is the keeper, which does the maintenance.

Two kinds of locks on the dir's ``.lock`` represent this; the system releases both when a process
exits for any reason: flock, held by an exclusive owner or by the keeper; and open-file locks on
bytes. Byte 0 is write-locked by an exclusive owner, and read-locked by those who share it. Byte 1
is held briefly while opening the dir or a log in it, so that only one process creates a page; byte
2 while deciding a transaction.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator

from kstore.log import errors
from kstore.private_files import open_private

__all__ = ["LOCK_NAME", "SHARED_NAME", "Membership", "holder_of", "open_lock", "take_alone"]

LOCK_NAME = ".lock"
SHARED_NAME = ".shared"
"""The shared state of the processes that share a log dir: see ``_SHARED``."""
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
_MEMBERS, _OPENING, _DECIDING = 0, 1, 2  # bytes of the lock file
_SHARED = struct.Struct("<8s16sB7xq")
"""Mark, incarnation, whether everything is flushed at once, number of pages that were created."""
_MARK = b"kstrdir1"
_FLOCK = struct.Struct("hhqqi4x")
_SET = getattr(fcntl, "F_OFD_SETLK", None)
_WAIT = getattr(fcntl, "F_OFD_SETLKW", None)


def open_lock(directory: str) -> int:
    """A descriptor of the dir's lock file, created if it does not exist."""
    path = os.path.join(directory, LOCK_NAME)
    try:
        return open_private(path, _LOCK_FLAGS)
    except OSError as error:
        raise errors.storage_error(error, f"opening {path} for writing") from error


def holder_of(descriptor: int) -> str:
    """The holder's name in the lock file."""
    return os.fsdecode(os.pread(descriptor, 4096, 0)).strip() or "another process"


def _try(descriptor: int, kind: int, byte: int, *, wait: bool = False) -> bool:
    """Take (or release) an open-file lock on a byte; returns False if another process has it."""
    how = _WAIT if wait else _SET
    if how is None:
        raise OSError(errno.ENOSYS, "this system has no open-file locks")
    try:
        fcntl.fcntl(descriptor, how, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            return False
        raise
    return True


def take_alone(directory: str, descriptor: int) -> None:
    """The holder of the dir's flock owns it exclusively from now on. Raises LogDirLockedError if
    others share it without a keeper at this moment.
    """
    if _SET is not None and not _try(descriptor, fcntl.F_WRLCK, _MEMBERS):
        raise errors.LogDirLockedError(directory, "processes that share it")


class Membership:
    """This process's membership of a shared log dir. Raises LogDirLockedError if a process owns it
    exclusively.
    """

    def __init__(self, directory: str, *, always: bool) -> None:
        self.directory = directory
        self._lock = open_lock(directory)
        self.is_keeper = False
        self._map: mmap.mmap | None = None
        try:
            self._join(always)
        except BaseException:
            os.close(self._lock)
            raise

    def _join(self, always: bool) -> None:
        if _SET is None:
            raise OSError(
                errno.ENOSYS, "shared=True needs Linux: open the log dir in one process", LOCK_NAME
            )
        with self.opening():
            is_first = _try(self._lock, fcntl.F_WRLCK, _MEMBERS)
            if not is_first and not _try(self._lock, fcntl.F_RDLCK, _MEMBERS):
                raise errors.LogDirLockedError(self.directory, holder_of(self._lock), shared=True)
            path = os.path.join(self.directory, SHARED_NAME)
            file = open_private(path, os.O_RDWR | os.O_CREAT)
            try:
                os.ftruncate(file, _SHARED.size)
                self._map = mmap.mmap(file, _SHARED.size)
            finally:
                os.close(file)
            if is_first:
                # No other process with a page of this dir is alive: all pages are created again.
                _SHARED.pack_into(self._map, 0, _MARK, os.urandom(16), always, 0)
                _try(self._lock, fcntl.F_RDLCK, _MEMBERS)
        mark, self.incarnation, theirs, _pages = _SHARED.unpack_from(self._map)
        if mark != _MARK:
            raise errors.LogError(
                f"{path} was created by another version of kstore: use one version in all processes"
            )
        if bool(theirs) != always:
            policy = "always" if theirs else "os or interval"
            raise ValueError(
                f'{self.directory} is shared by processes with flush="{policy}": use it here too'
            )

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """In this context no other process opens the dir, or a log in it."""
        _try(self._lock, fcntl.F_WRLCK, _OPENING, wait=True)
        try:
            yield
        finally:
            _try(self._lock, fcntl.F_UNLCK, _OPENING)

    @contextlib.contextmanager
    def deciding(self, *, wait: bool) -> Iterator[bool]:
        """In this context no other process decides a transaction; False: another one is doing
        so.
        """
        got = _try(self._lock, fcntl.F_WRLCK, _DECIDING, wait=wait)
        try:
            yield got
        finally:
            if got:
                _try(self._lock, fcntl.F_UNLCK, _DECIDING)

    @property
    def pages(self) -> int:
        """The number of log pages that were created; it increases when a log is opened that no
        process had open.
        """
        assert self._map is not None
        return int(_SHARED.unpack_from(self._map)[3])

    def count_page(self) -> None:
        """A log's page was created; call it in ``opening``."""
        assert self._map is not None
        struct.pack_into("<q", self._map, _SHARED.size - 8, self.pages + 1)

    def try_keep(self) -> bool:
        """Become the keeper, if there is none."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.is_keeper = True
        return True

    @property
    def descriptor(self) -> int:
        """The descriptor of the lock file, to write the holder's name."""
        return self._lock

    def leave(self) -> None:
        """Release everything."""
        descriptor, self._lock = self._lock, -1
        if descriptor >= 0:
            if self.is_keeper:
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def after_fork(self) -> None:
        """In a child process: close the descriptor; otherwise the parent would seem to be alive."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
