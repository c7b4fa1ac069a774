"""Producer ids, unique in the cluster for ever: this broker takes blocks of 1000 from the store and
hands them out.

The node is Kafka's `/latest_producer_id_block`. What is left of a block when the broker stops is
lost, as in Kafka.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kstore.broker.coordination.store import BadVersionError, NodeExistsError, NoNodeError

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = ["ProducerIds", "take_block"]

NODE = "/latest_producer_id_block"
BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out ids on the loop; fetches the next block in a thread."""

    def __init__(
        self,
        store: Store,
        broker_id: int,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._run_blocking = run_blocking
        self._next = 0
        self._end = 0
        self._one_at_a_time = asyncio.Lock()

    async def next_id(self) -> int:
        """An id that nobody else has or will have."""
        async with self._one_at_a_time:
            if self._next == self._end:
                self._next = await self._run_blocking(
                    lambda: take_block(self._store, self._broker_id)
                )
                self._end = self._next + BLOCK_SIZE
            self._next += 1
            return self._next - 1


def take_block(store: Store, broker_id: int) -> int:
    """Take the next block for this broker and return its first id; other brokers may be taking
    theirs.
    """
    while True:
        try:
            data, version = store.get(NODE)
        except NoNodeError:
            try:
                store.create(NODE, _block(broker_id, 0))
            except NodeExistsError:
                continue
            return 0
        first = int(json.loads(data)["block_end"]) + 1
        try:
            store.set(NODE, _block(broker_id, first), version)
        except BadVersionError:
            continue
        return first


def _block(broker_id: int, first: int) -> bytes:
    node = {
        "version": 1,
        "broker": broker_id,
        "block_start": str(first),
        "block_end": str(first + BLOCK_SIZE - 1),
    }
    return json.dumps(node, separators=(",", ":")).encode()
