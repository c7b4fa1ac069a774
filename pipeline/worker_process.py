"""Settings that a Python worker of Spark needs once, whatever its tasks do."""

from __future__ import annotations

import ctypes
import gc
from itertools import count

__all__ = ["keep_memory", "spare_imports"]

_TIMES = 2
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 64 << 20
_LARGEST_KEPT_BYTES = 32 << 20  # the most that glibc accepts
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


def keep_memory() -> None:
    """Have the allocator keep up to 64 MB that are free, for tasks that use buffers of megabytes
    again and again. Otherwise glibc returns each to the system, which clears the pages of the next
    one: a sixth of the CPU time of a task that writes. Other allocators stay as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
