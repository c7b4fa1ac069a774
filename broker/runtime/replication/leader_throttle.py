"""Throttles what leaders send to followers that are behind (KIP-73), for the configured replicas.
In-sync followers are never throttled. replica_throttles.py throttles the other end.
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
    """The throttle of a leader. While a rate is set, the data plane calls it before it answers
    followers.
    """

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
        """Apply the current settings."""
        self._rate = self._named.rate()
        throttled = set()
        if self._rate != NO_RATE:
            for partition, _ in self._log_manager.logs():
                if self._named.has(partition.entry.name.decode(), partition.index):
                    throttled.add(partition)
        self._throttled = throttled
        self._plane.fetch.throttle = self if throttled else None

    def may_send(self, partition: Partition, node_id: int) -> bool:
        """Whether a follower may get records of a partition now."""
        if partition not in self._throttled or node_id in partition.isr:
            return True
        return self._measured.throttle_ms(self._rate, self._now_ms()) <= 0

    def sent(self, partition: Partition, node_id: int, size_bytes: int) -> None:
        """Count bytes of a partition that a follower received."""
        if partition in self._throttled and node_id not in partition.isr:
            self._measured.record(self._now_ms(), size_bytes)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000
