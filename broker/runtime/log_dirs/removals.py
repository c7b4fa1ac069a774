"""Removes the files of deleted logs in the background: large files take time, and no request waits
for them. The folders have been renamed before. The next start removes the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.broker.runtime.log_dirs.dir_calls import Taken
    from kstore.broker.runtime.node import Node

__all__ = ["Removals"]


class Removals:
    """The removals of one broker."""

    def __init__(self, node: Node) -> None:
        self._dirs = node.dirs
        self._report = node.report
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, taken: Iterable[Taken]) -> None:
        """Remove the files soon. An error is reported."""
        removal = asyncio.ensure_future(self._remove(taken))
        self._running.add(removal)
        removal.add_done_callback(self._ended)

    def close(self) -> None:
        """Leave the rest to the next start."""
        for removal in self._running:
            removal.cancel()

    async def _remove(self, taken: Iterable[Taken]) -> None:
        """Each step is one call in the log dir's thread. Other calls, such as the creation of a
        topic, run in between.
        """
        for log_dir, folders in taken:
            for folder in folders:
                step = partial(log_dir.remove_step, folder)
                while await self._dirs.run(log_dir.path, f"removing {folder}", step):
                    pass

    def _ended(self, done: asyncio.Task[None]) -> None:
        self._running.discard(done)
        if not done.cancelled() and (problem := done.exception()) is not None:
            self._report(f"files of deleted logs stay until a restart: {problem}")
