"""The connection to one leader, reopened while there are partitions to copy from it.

_fast/replication/replica_fetcher.pyx uses it; fetchers.py selects the partitions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kstore._fast.replication.replica_fetcher import ReplicaFetcher
from kstore.broker.state.replication.follower import BackOff

if TYPE_CHECKING:
    from kstore._fast.replication.replica_fetcher import Owner
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers

__all__ = ["LeaderLink"]

FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.2
CONNECT_TIMEOUT_S = 10.0


class LeaderLink:
    """One leader's fetcher, and its connection."""

    def __init__(
        self,
        node: Node,
        membership: Membership,
        peers: Peers,
        owner: Owner,
        leader_id: int,
    ) -> None:
        self.leader_id = leader_id
        config = node.config
        self.fetcher = ReplicaFetcher(
            owner, node.loop.call_soon, leader_id=leader_id, node_id=node.node_id,
            broker_epoch=-1,
        )  # fmt: skip
        self.fetcher.max_wait_ms = config["replica.fetch.wait.max.ms"]
        self.fetcher.min_bytes = config["replica.fetch.min.bytes"]
        self.fetcher.max_bytes = config["replica.fetch.response.max.bytes"]
        self.fetcher.partition_bytes = config["replica.fetch.max.bytes"]
        self.fetcher.durable = config["kstore.flush.policy"] == "always"
        self._node = node
        self._membership = membership
        self._peers = peers
        self._timeout_s: float = config["replica.socket.timeout.ms"] / 1000
        self._pauses = BackOff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._connecting: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renews = False
        self._closed = False

    def connect(self) -> None:
        """Connect, unless it is connected or connecting."""
        if not self._closed and not self.fetcher.connected and self._connecting is None:
            self._connecting = self._node.loop.create_task(self._connect(0.0))

    def lost(self) -> None:
        """The connection was lost: open another one."""
        self._peers.unwatch(self.leader_id)
        renews, self._renews = self._renews, False
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if not self._closed and not renews:
            self._membership.suspect(self.leader_id)
        if not self._closed and self._connecting is None:
            pause_s = 0.0 if renews else self._pauses.pause_s(self._node.loop.time())
            self._connecting = self._node.loop.create_task(self._connect(pause_s))

    def close(self) -> None:
        """Close it permanently."""
        self._closed = True
        self._peers.unwatch(self.leader_id)
        if self._connecting is not None:
            self._connecting.cancel()
        for timer in filter(None, (self._watch, self._renewal)):
            timer.cancel()
        self.fetcher.close()

    async def _connect(self, pause_s: float) -> None:
        loop = self._node.loop
        try:
            while not self.fetcher.connected:
                await asyncio.sleep(pause_s)
                await self._try()
                pause_s = self._pauses.pause_s(loop.time())
        finally:
            self._connecting = None
        self._watch_later()

    async def _try(self) -> None:
        """Try to connect once. A leader that is not known or not available now may be soon."""
        endpoint = self._peers.endpoint(self.leader_id)
        if endpoint is None:
            return
        protocol: Any = self.fetcher
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, usable_s = await self._peers.connect(
                    lambda: protocol, endpoint.host, endpoint.port
                )
        except (OSError, TimeoutError):
            return
        if self.fetcher.descriptor >= 0:
            self._peers.watch(self.leader_id, self.fetcher.descriptor)
        if usable_s is not None:
            self._renewal = self._node.loop.call_later(usable_s, self._renew)

    def _renew(self) -> None:
        """Continue on another connection, since the session of this one ends soon."""
        self._renewal = None
        if self.fetcher.connected:
            self._renews = True
            self.fetcher.close()

    def _watch_later(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._node.loop.call_later(self._timeout_s, self._look, self.fetcher.bytes_in)

    def _look(self, bytes_in: int) -> None:
        """Close the connection if the leader has not answered for too long: a new connection may
        work.
        """
        self._watch = None
        if not self.fetcher.connected:
            return
        if self.fetcher.in_flight and self.fetcher.bytes_in == bytes_in:
            self._node.report(
                f"leader {self.leader_id} has not answered a fetch for {self._timeout_s:g} s: "
                "connecting again"
            )
            self.fetcher.close()
        else:
            self._watch_later()
