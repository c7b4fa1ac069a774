"""How much leaders may send to followers that are behind (KIP-73), of the replicas that are named
for it. Followers in sync are never slowed down. The other end's throttle is replica_throttles.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._fast.broker.partition import Partition
from kstore.broker.runtime.replication.replica_throttles import (
    NO_RATE,
    named_replica,
    new_rate,
    rate_set,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["LeaderThrottle"]

SIDE = "leader"


class LeaderThrottle:
    """What the data plane asks before it answers followers, while a rate is set."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._rate = NO_RATE
        self._measured = new_rate(broker)
        self._throttled: set[Partition] = set()

    def look(self) -> None:
        """Take over what is set now."""
        self._rate = rate_set(self._broker, SIDE)
        throttled = set()
        if self._rate != NO_RATE:
            for partition, _ in self._broker.log_manager.logs():
                topic = partition.entry.name.decode()
                if named_replica(self._broker, SIDE, topic, partition.index):
                    throttled.add(partition)
        self._throttled = throttled
        self._broker.plane.fetch.throttle = self if throttled else None

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
        return self._broker.loop.time() * 1000
