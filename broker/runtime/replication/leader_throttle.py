"""How much leaders may send to followers that are behind (KIP-73), of the replicas that are named
for it. Followers in sync are never slowed down. The other end's throttle is replica_throttles.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.runtime.replication.throttled_replicas import NO_RATE

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from kstore._fast.broker.partition import Partition
    from kstore._fast.network.data_plane import DataPlane
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.replication.throttled_replicas import ThrottledReplicas

__all__ = ["LeaderThrottle"]


class LeaderThrottle:
    """What the data plane asks before it answers followers, while a rate is set."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        named: ThrottledReplicas,
        log_manager: LogManager,
        plane: DataPlane,
    ) -> None:
        self._loop = loop
        self._named = named
        self._log_manager = log_manager
        self._plane = plane
        self._rate = NO_RATE
        self._measured = named.measure()
        self._throttled: set[Partition] = set()

    def look(self) -> None:
        """Take over what is set now."""
        self._rate = self._named.rate()
        throttled = set()
        if self._rate != NO_RATE:
            for partition, _ in self._log_manager.logs():
                if self._named.has(partition.entry.name.decode(), partition.index):
                    throttled.add(partition)
        self._throttled = throttled
        self._plane.fetch.throttle = self if throttled else None

    def may_send(self, partition: Partition, node_id: int) -> bool:
        """Whether a follower may have records of a partition now."""
        if partition not in self._throttled or node_id in partition.isr:
            return True
        return self._measured.throttle_ms(self._rate, self._now_ms()) <= 0

    def sent(self, partition: Partition, node_id: int, size_bytes: int) -> None:
        """A follower was answered with so many bytes of a partition."""
        if partition in self._throttled and node_id not in partition.isr:
            self._measured.record(self._now_ms(), size_bytes)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000
