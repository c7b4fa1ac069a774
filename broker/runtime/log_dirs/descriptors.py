"""How many files and sockets this process may still open. New topics and connections leave a
reserve, since rolling a segment, loading a handler and a clean stop need some.
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
"""The size of the descriptor table from the start. It takes half a megabyte in the kernel."""
FOR_THE_END = 8
FOR_CONNECTIONS = 24
FOR_LOGS = 40
"""How many descriptors connections and logs leave. Connections leave fewer, so clients can still
connect when no log can be opened.
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
    """Make the kernel grow the descriptor table now. Later it would block all threads for 46 to 331
    ms each time that the number of descriptors reaches a power of two.
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
        """Release the reserve for a clean stop, which opens folders to sync them. A second call
        does nothing, since other files may have these descriptors by then.
        """
        kept, self._reserve = self._reserve, []
        for fd in kept:
            os.close(fd)

    @property
    def left(self) -> int:
        """About how many descriptors are left. The system allocates the lowest free number."""
        try:
            lowest = os.dup(self._probe)
        except OSError as problem:
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                return 0
            raise
        os.close(lowest)
        return self._limit - lowest

    def refuse_connection(self) -> str | None:
        """Why no further connection can be accepted. None if one can."""
        return self._sentence() if self.left < FOR_CONNECTIONS else None

    def refuse_logs(self, count: int) -> str | None:
        """Why this many logs cannot be created without using the reserve. None if they can."""
        return self._sentence() if self.left < FOR_LOGS + count else None

    def _sentence(self) -> str:
        return (
            f"nearly all of the {self._limit} files that this process may open are open; "
            "raise the limit (ulimit -n) and restart"
        )
