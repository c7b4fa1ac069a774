"""The lock of a log dir: one process writes to it, or several that know each other. The file names
the holder.
"""

from __future__ import annotations

import fcntl
import os
import sys
from itertools import takewhile

from kstore.log import errors
from kstore.log.shared.membership import LOCK_NAME, Membership, holder_of, open_lock, take_alone

__all__ = ["LOCK_NAME", "LogDirLock"]


class LogDirLock:
    """The constructor takes the lock. Raises LogDirLockedError if another process has it.

    With ``shared`` other processes may also have it, and one of them is the keeper.
    """

    def __init__(self, directory: str, *, shared: bool = False, always: bool = False) -> None:
        self._path = os.path.join(directory, LOCK_NAME)
        self.was_closed = True
        """Whether the last holder released it: a process that is killed leaves its name behind."""
        self.members = Membership(directory, always=always) if shared else None
        """The processes that share it; None: it is for this one alone."""
        self._descriptor = -1
        if self.members is not None:
            self.try_keep()
            return
        self._descriptor = open_lock(directory)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            take_alone(directory, self._descriptor)
            self._sign(self._descriptor)
        except BlockingIOError:
            holder = holder_of(self._descriptor)
            self._close()
            raise errors.LogDirLockedError(directory, holder) from None
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def is_keeper(self) -> bool:
        """Whether this process does the maintenance."""
        return self.members is None or self.members.is_keeper

    def holder(self) -> str:
        """The process that does the maintenance."""
        descriptor = self._descriptor if self.members is None else self.members.descriptor
        return holder_of(descriptor)

    def try_keep(self) -> bool:
        """Become the keeper of a shared dir, if there is none."""
        members = self.members
        if members is None or members.is_keeper or not members.try_keep():
            return False
        self._sign(members.descriptor)
        return True

    def _sign(self, descriptor: int) -> None:
        self.was_closed = not os.pread(descriptor, 1, 0)
        # Not the values of options, which may be passwords.
        words = takewhile(lambda word: not word.startswith("-"), sys.argv)
        holder = f"pid {os.getpid()} ({' '.join(words) or 'python'})\n"
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, os.fsencode(holder))
        except OSError as error:
            raise errors.storage_error(error, f"writing to {self._path}") from error

    def give_back(self) -> None:
        """Release the log dir."""
        if self.members is not None:
            self.members.leave()
        elif self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            self._close()

    def after_fork(self) -> None:
        """In a child process: only close the file; otherwise the lock would be held as long as the
        child lives.
        """
        if self.members is not None:
            self.members.after_fork()
        self._close()
