"""How many more files and sockets this process may open, and a reserve of them that new topics and
connections may not take: rolling a segment, loading a handler or stopping cleanly needs some.
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
"""What the table of descriptors has room for from the start: half a megabyte of the kernel's."""
FOR_THE_END = 8
FOR_CONNECTIONS = 24
FOR_LOGS = 40
"""Left over by connections and by logs; connections may come when no log can be opened."""


def raise_descriptor_limit() -> None:
    """Allow as many open files as the system lets this process have: each connection is one, and
    each segment that is read or written.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # not allowed here: the limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    grow_descriptor_table(AT_START)


def grow_descriptor_table(count: int) -> None:
    """Have the system make room for so many descriptors now: later it would make all threads wait,
    46 to 331 ms each time that their number reaches a power of two.
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
            raise  # else: it grows as it is needed
    finally:
        os.close(probe)


class Descriptors:
    """What is left of the limit on open files."""

    def __init__(self) -> None:
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._reserve = [self._probe, *(os.dup(self._probe) for _ in range(FOR_THE_END))]

    def close(self) -> None:
        """Give back those that were kept for a clean end: it has to open folders, to sync them.
        A second time nothing happens: their numbers are others' by then.
        """
        kept, self._reserve = self._reserve, []
        for fd in kept:
            os.close(fd)

    @property
    def left(self) -> int:
        """How many there are, nearly: the system gives the lowest free number."""
        try:
            lowest = os.dup(self._probe)
        except OSError as problem:
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                return 0
            raise
        os.close(lowest)
        return self._limit - lowest

    def refuse_connection(self) -> str | None:
        """Why no connection can be taken, or None."""
        return self._sentence() if self.left < FOR_CONNECTIONS else None

    def refuse_logs(self, count: int) -> str | None:
        """Why so many logs can't be made, with enough left for the broker itself, or None."""
        return self._sentence() if self.left < FOR_LOGS + count else None

    def _sentence(self) -> str:
        return (
            f"nearly all of the {self._limit} files that this process may open are open; "
            "raise the limit (ulimit -n) and restart"
        )
