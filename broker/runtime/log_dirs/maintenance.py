"""Periodic work on logs, according to their settings: retention deletes old segments, compaction
cleans dirty logs.

None of it runs on the loop. Retention runs in the threads of the log dirs, some logs at a time.
Compaction runs in one more thread per log dir, in C without the GIL. A log dir that hangs does not
delay others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from kstore.broker.runtime.slices import Slices

if TYPE_CHECKING:
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.log import Log, LogDir

__all__ = ["Maintenance"]

LOGS_AT_ONCE = 64


class Maintenance:
    """Retention and compaction of the logs of one broker."""

    def __init__(self, node: Node, log_manager: LogManager) -> None:
        self._node = node
        self._config = node.config
        self._log_manager = log_manager
        self._cleaners: dict[str, ThreadPoolExecutor] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start; the first round runs after the first interval."""
        loop = asyncio.get_running_loop()
        for log_dir in self._log_manager.dirs:
            self._tasks.append(loop.create_task(self._retain(log_dir)))
            if self._config["log.cleaner.enable"]:
                self._tasks.append(loop.create_task(self._compact(log_dir)))

    def stop(self) -> None:
        """Stop, and wait for running compactions."""
        for task in self._tasks:
            task.cancel()
        for thread in self._cleaners.values():
            thread.shutdown(wait=True)

    async def _retain(self, log_dir: LogDir) -> None:
        while True:
            await asyncio.sleep(self._config["log.retention.check.interval.ms"] / 1000)
            for logs in self._some_logs(log_dir):
                what = f"looking for old segments of {logs[0].topic_partition}"
                call = partial(_retained, logs)
                self._report(await self._node.dirs.run(log_dir.path, what, call))

    async def _compact(self, log_dir: LogDir) -> None:
        while True:
            await asyncio.sleep(max(self._config["log.cleaner.backoff.ms"] / 1000, 0.1))
            slices = Slices()
            for logs in self._some_logs(log_dir):
                compacted = [log for log in logs if log.config.compacts]
                if not compacted:
                    await slices.breathe()
                    continue
                what = f"measuring what can be compacted in {compacted[0].topic_partition}"
                call = partial(_dirty, compacted, self._node.now_ms())
                for log in await self._node.dirs.run(log_dir.path, what, call):
                    await self._clean(log_dir, log)

    async def _clean(self, log_dir: LogDir, log: Log) -> None:
        loop = asyncio.get_running_loop()
        thread = self._cleaners.get(log_dir.path)
        if thread is None:
            thread = ThreadPoolExecutor(1, thread_name_prefix="kstore-cleaner")
            self._cleaners[log_dir.path] = thread
        begun, size_bytes = loop.time(), log.size_bytes
        self._report(await loop.run_in_executor(thread, _compacted, log))
        # The limit counts bytes read and written. If the cleaner was faster, it pauses for the
        # difference.
        moved_bytes = size_bytes + log.size_bytes
        rate = self._config["log.cleaner.io.max.bytes.per.second"]
        await asyncio.sleep(max(moved_bytes / rate - (loop.time() - begun), 0))

    def _some_logs(self, log_dir: LogDir) -> Iterator[list[Log]]:
        """The logs of a log dir, some at a time."""
        logs = log_dir.open_logs()
        for start in range(0, len(logs), LOGS_AT_ONCE):
            some = [
                log
                for log in logs[start : start + LOGS_AT_ONCE]
                if self._log_manager.home(log.topic_partition) is log_dir
            ]
            if some:
                yield some

    def _report(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self._node.report(problem)


def _retained(logs: Iterable[Log]) -> list[str]:
    """Apply retention to logs; returns the errors."""
    return [why for log in logs if (why := _problem(log.enforce_retention, log)) is not None]


def _compacted(log: Log) -> list[str]:
    why = _problem(log.compact, log)
    return [] if why is None else [why]


def _dirty(logs: Iterable[Log], now_ms: int) -> list[Log]:
    """The logs that need compaction."""
    return [log for log in logs if not log.closed and _is_dirty(log, now_ms)]


def _is_dirty(log: Log, now_ms: int) -> bool:
    dirt = log.dirt(now_ms)
    if dirt.first_uncleanable_offset <= dirt.first_dirty_offset:
        return False
    return dirt.ratio > log.config.min_cleanable_dirty_ratio or dirt.overdue_ms > 0


def _problem(work: Callable[[], object], log: Log) -> str | None:
    """Do the work. Returns the sentence to report if it fails; the other logs continue. An error of
    a log that was deleted meanwhile is ignored.
    """
    from kstore.log.errors import LogClosedError, LogError

    try:
        work()
    except LogClosedError:
        return None
    except (LogError, OSError) as problem:
        log.log_dir.note_error(problem)
        return f"{log.topic_partition} could not be maintained: {problem}"
    return None
