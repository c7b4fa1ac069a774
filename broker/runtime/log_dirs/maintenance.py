"""What logs need now and then: old segments deleted, dirty ones compacted. What and when is in
their settings.

Retention runs on the loop, a log at a time; compaction in a thread, whose work is C without the
GIL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.log import Log

__all__ = ["Maintenance"]


class Maintenance:
    """Retention and compaction of the logs of one broker."""

    def __init__(self, node: Node, log_manager: LogManager) -> None:
        self._node = node
        self._config = node.config
        self._log_manager = log_manager
        self._thread: ThreadPoolExecutor | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; the first round comes after the first interval."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._retain()))
        if self._config["log.cleaner.enable"]:
            self._tasks.append(loop.create_task(self._compact()))

    def stop(self) -> None:
        """Begin nothing more; a compaction under way is waited for."""
        for task in self._tasks:
            task.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(self._config["log.retention.check.interval.ms"] / 1000)
            for log in self._logs():
                self._try(log.enforce_retention, log)
                await asyncio.sleep(0)

    async def _compact(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(self._config["log.cleaner.backoff.ms"] / 1000, 0.1))
            for log in self._logs():
                if not log.config.compacts or not self._is_dirty(log):
                    continue
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="kstore-cleaner")
                begun, size_bytes = loop.time(), log.size_bytes
                await loop.run_in_executor(self._thread, self._try, log.compact, log)
                # What was read, and what was written; a faster cleaner rests for the difference.
                moved_bytes = size_bytes + log.size_bytes
                rate = self._config["log.cleaner.io.max.bytes.per.second"]
                await asyncio.sleep(max(moved_bytes / rate - (loop.time() - begun), 0))

    def _is_dirty(self, log: Log) -> bool:
        dirt = log.dirt(self._node.now_ms())
        if dirt.first_uncleanable_offset <= dirt.first_dirty_offset:
            return False
        return dirt.ratio > log.config.min_cleanable_dirty_ratio or dirt.overdue_ms > 0

    def _logs(self) -> Iterator[Log]:
        for partition, log in self._log_manager.logs():
            if not partition.deleted:
                yield log

    def _try(self, work: Callable[[], object], log: Log) -> None:
        """A log that fails is reported; the others have their turn."""
        from kstore.log.errors import LogError

        try:
            work()
        except LogError as problem:
            self._node.report(f"{log.topic_partition} can't be kept in order: {problem}")
