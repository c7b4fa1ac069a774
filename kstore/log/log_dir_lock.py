"""The lock of a log dir: one process writes to it. The file says who."""

from __future__ import annotations

import fcntl
import os
import sys
from itertools import takewhile
from typing import IO

from kstore.log import errors
from kstore.private_files import open_private

__all__ = ["LogDirLock"]

LOCK_NAME = ".lock"
LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND


class LogDirLock:
    """Taken when it is made; LogDirLockedError where another process has it."""

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, LOCK_NAME)
        try:
            file = os.fdopen(open_private(path, LOCK_FLAGS), "a+", encoding="utf-8")
        except OSError as error:
            raise errors.storage_error(error, f"opening {path} for writing") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise errors.LogDirLockedError(directory, holder) from None
        file.seek(0)
        self.was_closed = not file.read(1)
        """Whether the last one who had it gave it back: who is killed leaves the name behind."""
        # Not what follows an option: that may be a password.
        words = takewhile(lambda word: not word.startswith("-"), sys.argv)
        holder = f"pid {os.getpid()} ({' '.join(words) or 'python'})\n"
        try:
            file.truncate(0)
            os.write(file.fileno(), os.fsencode(holder))
        except OSError as error:
            file.close()
            raise errors.storage_error(error, f"writing to {path}") from error
        self._file: IO[str] | None = file

    def give_back(self) -> None:
        """Others may have the log dir."""
        file, self._file = self._file, None
        if file is not None:
            file.truncate(0)
            file.close()

    def after_fork(self) -> None:
        """In a child process: only close the file, or the lock would be held as long as the child
        lives.
        """
        if self._file is not None:
            self._file.close()
            self._file = None
