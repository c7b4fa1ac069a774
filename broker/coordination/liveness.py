"""How processes on one machine see that a session's process lives: a file per session, locked by
the process as long as it runs, and touched by it at times.

The kernel drops a killed process's lock at once; a process that is stopped keeps it, but touches
nothing. Nothing here decides that a session is over, and nothing knows the tree.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from contextlib import suppress

from kstore.private_files import make_private_folder, open_private

__all__ = ["SessionFiles"]


STOPPED = (b"T", b"t")
"""How /proc/PID/stat calls a process that a signal, or a debugger, has stopped."""
log = logging.getLogger("kstore.broker")


class SessionFiles:
    """The folder with the sessions' files. Safe to use from several threads.

    ``timeout_ms``: how long sessions of this process live while it is not heard, which their files
    tell the others; ``stall_timeout_ms``: how long where the kernel says that it was stopped (by
    SIGSTOP, say); 0: as long.
    """

    def __init__(self, folder: str, timeout_ms: int, stall_timeout_ms: int = 0) -> None:
        make_private_folder(folder)
        self._folder = folder
        self._timeout_ms = timeout_ms
        self._stall_timeout_ms = stall_timeout_ms
        self._held: dict[int, int] = {}

    def hold(self, session_id: int) -> None:
        """Say that this process is alive, for a session of its own."""
        descriptor = open_private(self._path(session_id), os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        numbers = os.getpid(), self._timeout_ms, self._stall_timeout_ms
        os.pwrite(descriptor, b"%d %d %d\n" % numbers, 0)
        self._held[session_id] = descriptor

    def release(self, session_id: int) -> None:
        """End what `hold` began."""
        descriptor = self._held.pop(session_id, None)
        if descriptor is not None:
            self.remove(session_id)
            os.close(descriptor)

    def after_fork(self) -> None:
        """In a child process: it holds no session, or they would outlive the process that does."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def remove(self, session_id: int) -> None:
        """Remove the file of a session that is over."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(session_id))

    def touch(self) -> None:
        """Say again that this process is alive."""
        for descriptor in list(self._held.values()):
            with suppress(OSError):  # released meanwhile
                os.utime(descriptor)

    def process(self, session_id: int) -> int | None:
        """The process that holds a session; None if there is no such file."""
        return self._written(session_id, 0)

    @property
    def interval_s(self) -> float:
        """How often this process has to show up, and looks at the others."""
        return min(self._timeout_ms, self._stall_timeout_ms or self._timeout_ms) / 4000

    def timeout_s(self, session_id: int) -> float:
        """How long a session lives from now on if its process is not heard."""
        stall_ms = self._written(session_id, 2)
        if stall_ms and self.is_stopped(session_id):
            return stall_ms / 1000
        return (self._written(session_id, 1) or self._timeout_ms) / 1000

    def is_stopped(self, session_id: int) -> bool:
        """Whether the kernel has stopped the session's process, until somebody lets it go on. One
        that waits for a processor, or for a disk, is not stopped.
        """
        process = self.process(session_id)
        try:
            with open(f"/proc/{process}/stat", "rb") as file:
                state = file.read(400).rpartition(b")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return False
        return state in STOPPED

    def _written(self, session_id: int, place: int) -> int | None:
        try:
            descriptor = open_private(self._path(session_id), os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                return int(file.read(40).split()[place])
        except (FileNotFoundError, ValueError, IndexError):
            return None

    def touched_ns(self, session_id: int) -> int:
        """When its process touched it last, by the file system's clock; 0 if there is no file."""
        try:
            return os.stat(self._path(session_id)).st_mtime_ns
        except FileNotFoundError:
            return 0

    def is_dead(self, session_id: int) -> bool:
        """Whether no process holds the session any more."""
        if session_id in self._held:
            return False
        try:
            descriptor = open_private(self._path(session_id), os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def kill(self, session_id: int) -> None:
        """Kill the process of another's session, if it is still held."""
        process = self.process(session_id)
        if process is not None and process != os.getpid() and not self.is_dead(session_id):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
                log.warning(
                    "process %d hung with the coordination store locked and was killed: "
                    "no broker could write to the store",
                    process,
                )

    def all_sessions(self) -> list[int]:
        """The sessions that there are files of."""
        return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())

    def _path(self, session_id: int) -> str:
        return os.path.join(self._folder, str(session_id))
