"""Settings that a Python worker of Spark needs once, whatever its tasks do."""

from __future__ import annotations

import gc
from itertools import count

__all__ = ["spare_imports"]

_TIMES = 2
_tasks = count()


def spare_imports() -> None:
    """Exclude what this worker has imported from garbage collection; each task calls this.

    Spark collects all garbage of a worker after each of its tasks, among several hundred thousand
    objects of modules, which live as long as the process. That was a fifth of the CPU time of tasks
    that read 100 MB. The first task imports what it reads with, so the second one does this once
    more. Later objects are collected as usual. A collection before this would cost as much again.
    """
    if next(_tasks) < _TIMES:
        gc.freeze()
