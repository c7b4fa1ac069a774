"""Files of which one of the next calls fails, or kills the process; and a process to be killed."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

from kstore._fast.log.segment_file import SegmentFile
from kstore.env import SystemFileSystem

__all__ = ["FailingFiles", "is_killed"]


class FailingFiles(SystemFileSystem):
    """The call after `left` others fails: opening a new segment, reading, truncating, unlinking or
    renaming one. With `kills`, the process is killed instead.
    """

    left = -1
    kills = False

    def step(self) -> None:
        """One of these calls begins."""
        self.left -= 1
        if self.left == -1 and self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.left == -1:
            raise OSError(errno.EIO, "no")

    def open_segment(
        self, factory: Callable[..., Any], path: str, *, writable: bool, create: bool
    ) -> Any:
        """A file whose calls count, too."""
        if create:
            self.step()
        file = _FailingFile(path, writable=writable, create=create)
        file.files = self
        return file

    def unlink(self, path: str) -> None:
        """As the original, or a failure."""
        self.step()
        super().unlink(path)

    def replace(self, source: str, target: str) -> None:
        """As the original, or a failure."""
        self.step()
        super().replace(source, target)

    def fails(self, number: int, work: Callable[[], object]) -> bool:
        """Whether the work fails if the call after so many others does."""
        self.left = number
        try:
            work()
        except OSError:
            return True
        finally:
            self.left = -1
        return False


class _FailingFile(SegmentFile):
    files: FailingFiles

    def read(self, size: int, position: int) -> bytes:
        self.files.step()
        return super().read(size, position)

    def truncate(self, size_bytes: int) -> int:
        self.files.step()
        return super().truncate(size_bytes)


def is_killed(work: Callable[[], object]) -> bool:
    """Run work in a child process: True if that was killed, False if it has finished the work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, -signal.SIGKILL}
    return status != 0
