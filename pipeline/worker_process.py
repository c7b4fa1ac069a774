"""What a Python worker of Spark is told once, whatever its tasks do: not what a task reads or
writes.
"""

from __future__ import annotations

import gc
from itertools import count

__all__ = ["spare_imports"]

_TIMES = 2
_tasks = count()


def spare_imports() -> None:
    """Take what this worker has imported out of what garbage collection walks; called by each task.

    Spark collects all garbage of a worker after each of its tasks: by then some hundred thousand
    objects of modules, which live as long as the process does. That was a fifth of the CPU of tasks
    that read 100 MB. The first task imports what it reads with, so the second one does it once
    more. What is made later is collected as ever. To collect once before would cost as much again.
    """
    if next(_tasks) < _TIMES:
        gc.freeze()
