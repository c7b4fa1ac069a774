"""When a connection to a broker has ended, finds out whether the broker has ended, too. The
coordination store would know only when the session expires.

LMDB's store knows the processes of its sessions, so it is asked. With ZooKeeper, a broker counts as
ended if its connection broke and its port refuses a new one; its nodes are then deleted. If a
broker hangs, or its machine or network has failed, no connection is refused: then its session must
expire.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio import Protocol as LinkProtocol
from asyncio import Task
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.broker.coordination import registration, znodes
from kstore.broker.coordination.store import StoreError

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers

__all__ = ["SuspectedBrokers"]

log = logging.getLogger("kstore.broker")
PAUSES_S = (0.0, 0.002, 0.01, 0.05)
"""The pauses before each check. A process that ends closes its connections one after the other, and
its port last.
"""
CONNECT_S = 0.2


class SuspectedBrokers:
    """The brokers that seem to have ended. All methods run on the broker's loop."""

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        peers: Lazy[Peers],
        on_ended: Callable[[int], object],
    ) -> None:
        """``on_ended`` is called with the id of a broker that has ended."""
        self.on_suspected: list[Callable[[int], object]] = []
        """Called with the id of a broker that may have ended."""
        self.on_cleared: list[Callable[[int], object]] = []
        """Called with the id of a broker that has not ended after all."""
        self._node = node
        self._store = store
        self._metadata = metadata
        self._peers = peers
        self._on_ended = on_ended
        self._looking: dict[int, Task[None]] = {}
        self._closed = False

    def suspect(self, node_id: int) -> None:
        """Called when a connection to a broker has ended: finds out whether its process has ended,
        too.
        """
        known = self._metadata.image.brokers.get(node_id)
        if known is None or node_id == self._node.node_id or self._closed:
            return
        if self._has_ended(node_id):
            self._on_ended(node_id)
            return
        if node_id in self._looking:
            return
        for callback in self.on_suspected:
            callback(node_id)
        looking = self._node.loop.create_task(self._look(node_id, known.epoch))
        self._looking[node_id] = looking
        looking.add_done_callback(lambda _: self._looking.pop(node_id, None))

    async def close(self) -> None:
        """Stop checking."""
        self._closed = True
        looking = list(self._looking.values())
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)

    async def _look(self, node_id: int, epoch: int) -> None:
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            known = self._metadata.image.brokers.get(node_id)
            if known is None or known.epoch != epoch:
                return  # it is gone, or has registered again
            ended = self._has_ended(node_id)
            if ended is None and self._node.config["kstore.zookeeper.refusal.ends.session"]:
                if await self._refuses(node_id):
                    await self._end(node_id, epoch)
                    return
            elif ended:
                self._on_ended(node_id)
                return
        for callback in self.on_cleared:
            callback(node_id)

    def _has_ended(self, node_id: int) -> bool | None:
        try:
            return self._store.owner_has_ended(f"{znodes.BROKER_IDS}/{node_id}")
        except StoreError:
            return False

    async def _refuses(self, node_id: int) -> bool:
        """Whether the broker's machine refuses connections to its port, at each of its
        addresses.
        """
        endpoint = self._peers().endpoint(node_id)
        if endpoint is None:
            return False
        loop = self._node.loop
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await loop.getaddrinfo(
                    endpoint.host, endpoint.port, type=socket.SOCK_STREAM
                )
                for *_, address in found:
                    with suppress(ConnectionRefusedError):
                        transport, _ = await loop.create_connection(LinkProtocol, *address[:2])
                        transport.abort()
                        return False
        except (OSError, TimeoutError) as problem:
            log.debug("it is not known whether broker %d has ended: %s", node_id, problem)
            return False
        return bool(found)

    async def _end(self, node_id: int, epoch: int) -> None:
        """Delete the nodes of a broker whose process has ended, as the store would do when its
        session expires.
        """
        self._node.report(
            f"broker {node_id} has ended: its connections broke and its port refuses others"
        )
        self._on_ended(node_id)
        try:
            await self._node.run_blocking(
                lambda: registration.unregister(self._store, node_id, epoch)
            )
        except StoreError as problem:  # the session's end removes them
            log.info("broker %d stays registered until its session expires: %s", node_id, problem)
