"""Shows the processes of one machine whether a session's process is alive. There is one file per
session, which the process locks while it runs, and touches periodically.

The kernel releases a killed process's lock at once. A stopped process keeps its lock, but does not
touch the file. This file does not decide that a session is over, and does not know the tree.
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
"""The state in /proc/PID/stat of a process that a signal, or a debugger, has stopped."""
log = logging.getLogger("kstore.broker")


class SessionFiles:
    """The folder with the sessions' files. Thread-safe.

    ``timeout_ms``: how long sessions of this process live if their files are not touched. The files
    contain it. ``stall_timeout_ms``: the same if the kernel reports that the process is stopped (by
    SIGSTOP, for example); 0: no difference.
    """

    def __init__(self, folder: str, timeout_ms: int, stall_timeout_ms: int = 0) -> None:
        make_private_folder(folder)
        self._folder = folder
        self._timeout_ms = timeout_ms
        self._stall_timeout_ms = stall_timeout_ms
        self._held: dict[int, int] = {}

    def hold(self, session_id: int) -> None:
        """Show that this process is alive, for one of its sessions."""
        descriptor = open_private(self._path(session_id), os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        numbers = os.getpid(), self._timeout_ms, self._stall_timeout_ms
        os.pwrite(descriptor, b"%d %d %d\n" % numbers, 0)
        self._held[session_id] = descriptor

    def release(self, session_id: int) -> None:
        """Undo `hold`."""
        descriptor = self._held.pop(session_id, None)
        if descriptor is not None:
            self.remove(session_id)
            os.close(descriptor)

    def after_fork(self) -> None:
        """Call it in a forked child process: gives up all locks, which would otherwise outlive the
        parent process.
        """
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def remove(self, session_id: int) -> None:
        """Remove the file of a session that is over."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(session_id))

    def touch(self) -> None:
        """Touch the files, to show that this process is alive."""
        for descriptor in list(self._held.values()):
            with suppress(OSError):  # released meanwhile
                os.utime(descriptor)

    def process(self, session_id: int) -> int | None:
        """The process id of a session. None if it has no file."""
        return self._written(session_id, 0)

    @property
    def interval_s(self) -> float:
        """How often this process touches its files and checks those of the others."""
        return min(self._timeout_ms, self._stall_timeout_ms or self._timeout_ms) / 4000

    def timeout_s(self, session_id: int) -> float:
        """How long a session lives if its file is not touched from now on."""
        stall_ms = self._written(session_id, 2)
        if stall_ms and self.is_stopped(session_id):
            return stall_ms / 1000
        return (self._written(session_id, 1) or self._timeout_ms) / 1000

    def is_stopped(self, session_id: int) -> bool:
        """Whether the kernel has stopped the session's process until it is continued. A process
        that waits for a CPU or a disk is not stopped.
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
        """When a session's file was last touched, by the file system's clock. 0 if there is no
        file.
        """
        try:
            return os.stat(self._path(session_id)).st_mtime_ns
        except FileNotFoundError:
            return 0

    def is_dead(self, session_id: int) -> bool:
        """Whether no process holds the session's lock any more."""
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
        """Kill the process of another session, if it still has the lock."""
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
        """The sessions that have files."""
        return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())

    def _path(self, session_id: int) -> str:
        return os.path.join(self._folder, str(session_id))
