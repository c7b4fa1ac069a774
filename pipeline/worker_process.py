"""Settings that a Python process of Spark needs once, whatever its tasks do.

`python -m kstore.pipeline.worker_process MODULE` runs Spark's module MODULE with
`import_rows_later`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import runpy
import sys
from functools import cache
from itertools import count
from types import ModuleType
from typing import Any

__all__ = ["import_rows_later", "keep_memory", "spare_imports"]

_TIMES = 2
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 64 << 20
_LARGEST_KEPT_BYTES = 32 << 20  # the most that glibc accepts
_tasks = count()
_ROWS = "pyspark.sql.worker.plan_data_source_read"


def spare_imports() -> None:
    """Exclude what this worker has imported from garbage collection; each task calls this.

    Spark collects all garbage of a worker after each of its tasks, among several hundred thousand
    objects of modules, which live as long as the process. That was a fifth of the CPU time of tasks
    that read 100 MB. The first task imports what it reads with, so the second one does this once
    more. Later objects are collected as usual. A collection before this would cost as much again.
    """
    if next(_tasks) < _TIMES:
        gc.freeze()


@cache
def keep_memory() -> None:
    """Have the allocator keep up to 64 MB that are free, for tasks that use buffers of megabytes
    again and again. Otherwise glibc returns each to the system, which clears the pages of the next
    one: a sixth of the CPU time of a task that reads or writes. Other allocators stay as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def import_rows_later() -> None:
    """Put a stand-in in the place of Spark's module that makes rows. It imports the module, with
    pyarrow and numpy, when something of it is first used.

    The process that plans the micro-batches of a stream imports the module, but uses it only for
    sources that return rows there. kstore's does not. Without pyarrow and numpy, the process starts
    with a quarter less CPU time.
    """
    later = ModuleType(_ROWS)

    def module() -> ModuleType:
        if sys.modules.get(_ROWS) is later:
            del sys.modules[_ROWS]
        return importlib.import_module(_ROWS)

    def records_to_arrow_batches(*given: Any, **named: Any) -> Any:
        return module().records_to_arrow_batches(*given, **named)

    def other(name: str) -> Any:
        if name.startswith("__"):  # the import asks for __path__
            raise AttributeError(name)
        return getattr(module(), name)

    vars(later).update(records_to_arrow_batches=records_to_arrow_batches, __getattr__=other)
    sys.modules[_ROWS] = later


if __name__ == "__main__":
    import_rows_later()
    runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
