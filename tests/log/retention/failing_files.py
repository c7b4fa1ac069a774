"""Files of which one of the next calls fails, or kills the process; and a process to be killed."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable

from tests.log.handling import in_a_child
from tests.log.segments.hooked_files import HookedFiles

STEPS = ("create", "read", "truncate", "unlink", "replace")


class FailingFiles(HookedFiles):
    """The one of the STEPS after `left` others fails, or kills the process if `kills` is set."""

    left = -1
    kills = False

    def before(self, call: str, path: str) -> None:
        """One of the calls begins."""
        self.left -= call in STEPS
        if self.left == -1 and call in STEPS:
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.EIO, "no")

    def fails(self, number: int, work: Callable[[], object]) -> bool:
        """Whether the work fails if the call after this number of others fails."""
        self.left = number
        try:
            work()
        except OSError:
            return True
        finally:
            self.left = -1
        return False


def is_killed(work: Callable[[], object]) -> bool:
    """Run work in a child process: True if that was killed, False if it has finished the work."""
    status = in_a_child(work)
    assert status in {0, -signal.SIGKILL}
    return status != 0
