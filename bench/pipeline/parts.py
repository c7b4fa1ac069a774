"""Where Spark's CPU seconds go: the JVM's threads by task, its Python processes, and the processes
that it waited for. For a thread or process that has ended, the last seen value counts.
"""

from __future__ import annotations

from pathlib import Path

from bench.measure import TICKS_PER_S, process_family

__all__ = ["NAMES", "Parts"]

NAMES = {
    "tasks": "task threads",
    "tasks_kernel": "task threads, in the kernel",
    "compiler": "the JVM's compiler",
    "collector": "garbage collection and VM",
    "jvm": "other threads of the JVM",
    "python": "Python workers",
    "python_kernel": "Python workers, in the kernel",
    "ended": "processes that ended (a stream's Python)",
}
"""The parts, and their names in a table."""

_THREADS = {
    "Executor task": "tasks", "C1 ": "compiler", "C2 ": "compiler", "Sweeper": "compiler",
    "GC ": "collector", "G1 ": "collector", "VM ": "collector",
}  # fmt: skip
"""The first characters of thread names. Threads that are not listed here count as the JVM's other
threads.
"""


class Parts:
    """The CPU seconds of a JVM and its children so far, by part."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[tuple[str, str], int] = {}

    def seconds(self) -> dict[str, float]:
        """Each part of NAMES, in steps of 10 ms for each thread and process."""
        for stat in Path(f"/proc/{self._pid}/task").glob("*/stat"):
            self._look(stat, "")
        for child in process_family(self._pid):
            if child != self._pid:
                self._look(Path(f"/proc/{child}/stat"), "python")
        found = dict.fromkeys(NAMES, 0)
        for (part, _), ticks in self._seen.items():
            found[part] = found.get(part, 0) + ticks
        found["ended"] = sum(_fields(Path(f"/proc/{self._pid}/stat"))[1][2:4])
        return {name: found[name] / TICKS_PER_S for name in NAMES}

    def _look(self, stat: Path, part: str) -> None:
        name, (user, kernel, *_) = _fields(stat)
        if not part:
            part = next((p for begin, p in _THREADS.items() if name.startswith(begin)), "jvm")
        for what, ticks in ((part, user + kernel), (f"{part}_kernel", kernel)):
            key = (what, str(stat))
            self._seen[key] = max(self._seen.get(key, 0), ticks)


def _fields(stat: Path) -> tuple[str, list[int]]:
    """The name of a thread or process, its ticks in user mode and in the kernel, and those of the
    children that it waited for. Zeros if it has ended.
    """
    try:
        head, _, rest = stat.read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return "", [0, 0, 0, 0]
    return head.partition("(")[2], [int(ticks) for ticks in rest.split()[11:15]]
