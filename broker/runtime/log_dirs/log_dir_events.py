"""Reports a failed log dir to the controller: the broker creates a node in the coordination store,
as in Kafka with ZooKeeper. The controller then sends LeaderAndIsr for the broker's replicas again.
The response shows which of them the broker cannot serve (KAFKA_STORAGE_ERROR).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kstore.broker.coordination import znodes
from kstore.broker.coordination.store import StoreError

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.node import Node

__all__ = ["LogDirEvents"]

RETRY_S = 1.0


class LogDirEvents:
    """The reports of this broker."""

    def __init__(self, node: Node, store: Store) -> None:
        self._node = node
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    def announce(self) -> None:
        """Notify the controller, once the store is reachable."""
        task = self._node.loop.create_task(self._announce())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _announce(self) -> None:
        def write() -> None:
            znodes.announce_failed_log_dir(self._store, self._node.node_id)

        while True:
            try:
                await self._node.run_blocking(write)
                return
            except StoreError as problem:
                self._node.report(
                    f"the controller does not know yet of a failed log dir: {problem}"
                )
            await asyncio.sleep(RETRY_S)
