"""The number of files and sockets that this process may still open, and a reserve that new topics
and connections may not use: rolling a segment, loading a handler or a clean stop needs some.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource

__all__ = ["MAX_DESCRIPTORS", "Descriptors", "grow_descriptor_table", "raise_descriptor_limit"]

MAX_DESCRIPTORS = 1 << 20
AT_START = 1 << 16
"""The size of the descriptor table from the start: half a megabyte in the kernel."""
FOR_THE_END = 8
FOR_CONNECTIONS = 24
FOR_LOGS = 40
"""The reserves that connections and logs leave; connections are still possible when no log can be
opened.
"""


def raise_descriptor_limit() -> None:
    """Raise the limit of open files as far as the system allows: each connection is one, and each
    segment in use.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # not allowed: the limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    grow_descriptor_table(AT_START)


def grow_descriptor_table(count: int) -> None:
    """Make the system grow the descriptor table now: later it would block all threads, for 46 to
    331 ms each time that their number reaches a power of two.
    """
    if count < 1:
        return
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = min(count, MAX_DESCRIPTORS if limit == resource.RLIM_INFINITY else limit)
    probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(probe, fcntl.F_DUPFD_CLOEXEC, count - 1))
    except OSError as problem:
        if problem.errno not in (errno.EMFILE, errno.EINVAL, errno.ENOMEM):
            raise  # otherwise it grows on demand
    finally:
        os.close(probe)


class Descriptors:
    """The remaining part of the limit of open files."""

    def __init__(self) -> None:
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._reserve = [self._probe, *(os.dup(self._probe) for _ in range(FOR_THE_END))]

    def close(self) -> None:
        """Release the reserve for a clean stop, which must open folders to sync them. A second call
        does nothing: the numbers may be in use again.
        """
        kept, self._reserve = self._reserve, []
        for fd in kept:
            os.close(fd)

    @property
    def left(self) -> int:
        """About how many are left: the system allocates the lowest free number."""
        try:
            lowest = os.dup(self._probe)
        except OSError as problem:
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                return 0
            raise
        os.close(lowest)
        return self._limit - lowest

    def refuse_connection(self) -> str | None:
        """Why no connection can be accepted, or None."""
        return self._sentence() if self.left < FOR_CONNECTIONS else None

    def refuse_logs(self, count: int) -> str | None:
        """Why this many logs cannot be created with enough descriptors left for the broker, or
        None.
        """
        return self._sentence() if self.left < FOR_LOGS + count else None

    def _sentence(self) -> str:
        return (
            f"nearly all of the {self._limit} files that this process may open are open; "
            "raise the limit (ulimit -n) and restart"
        )
