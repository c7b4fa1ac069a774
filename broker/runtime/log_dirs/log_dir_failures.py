"""Log dirs that fail at run time. A failed log dir takes only its own partitions offline. A broker
without a working log dir stops.

The log decides which errors are a failure (LogDirState.note_error). The callbacks decide what an
offline partition means on a single broker and in a cluster.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kstore.broker.runtime.slices import Slices

if TYPE_CHECKING:
    import asyncio

    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.log import LogDir
    from kstore.types import TopicPartition

__all__ = ["LogDirFailures", "unusable"]

NO_FOLDER = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}

LOGGER = logging.getLogger("kstore.broker")


class LogDirFailures:
    """The log dirs of one broker, and the actions when one fails."""

    def __init__(self, node: Node, log_manager: LogManager) -> None:
        self.on_partition: Callable[[TopicPartition], object] | None = None
        """Called with each partition that is now offline."""
        self.on_offline: Callable[[list[TopicPartition]], object] | None = None
        """Called after that, with all partitions that are now offline."""
        self.on_last: Callable[[str], object] | None = None
        """Called with a message when no log dir works any more."""
        self._node = node
        self._log_manager = log_manager
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Start, once the log dirs are open."""
        self._node.dirs.on_error = self._note_error
        for log_dir in self._log_manager.dirs:
            log_dir.when_failed(partial(self._from_any_thread, log_dir))

    def _note_error(self, path: str, problem: Exception) -> None:
        for log_dir in self._log_manager.dirs:
            if log_dir.path == path:
                log_dir.note_error(problem)

    def _from_any_thread(self, log_dir: LogDir) -> None:
        if not self._node.loop.is_closed():
            self._node.loop.call_soon_threadsafe(self._begin, log_dir)

    def _begin(self, log_dir: LogDir) -> None:
        task = self._node.loop.create_task(self._take_offline(log_dir))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_offline(self, log_dir: LogDir) -> None:
        manager = self._log_manager
        manager.failed[log_dir.path] = log_dir.failed or ""
        places = manager.places_in(log_dir)
        LOGGER.error(
            "the log dir %s has failed, and its %d partitions are offline until it works and this "
            "broker restarts: %s", log_dir.path, len(places), log_dir.failed,
        )  # fmt: skip
        if all(each.path in manager.failed for each in manager.dirs):
            if self.on_last is not None:
                self.on_last(f"no log dir works any more: {log_dir.failed}")
            return
        slices = Slices()
        for place in places:
            if self.on_partition is not None:
                self.on_partition(place)
            await slices.breathe()
        if self.on_offline is not None:
            self.on_offline(places)


def unusable(path: str, problem: Exception) -> Exception:
    """The error to raise if no log dir can be opened. A folder that cannot be created or entered is
    an invalid setting.
    """
    from kstore.log.errors import LogStorageError

    cause = problem.__cause__
    if not isinstance(cause, OSError) or cause.errno not in NO_FOLDER:
        return problem
    return LogStorageError(
        f"log.dirs: {path} can't hold logs ({cause.strerror}): set a folder that this user can "
        "create and write to"
    )
