"""The leader's view of one replicated partition: followers' offsets, the high watermark, and its
waiters; see replica_state.pyx.
"""

from collections.abc import Callable
from typing import Any

class CommitWait:
    """Waits until the high watermark has reached an offset."""

class ReplicationContext:
    """What the replicated partitions of a broker share: the clock, the tolerated lag, and the live
    brokers.
    """

    clock: Callable[[], int] | None
    """A monotonic clock in milliseconds; None: the machine's."""
    max_lag_ms: int
    """replica.lag.time.max.ms"""
    live: dict[int, int] | None
    """Node id to broker epoch of the live brokers; None: not known yet. After replacing it, call
    advance() of the partitions that are led.
    """
    racks: dict[int, bytes]
    """Node id to rack, of brokers that have one."""
    def __init__(self, *, max_lag_ms: int = 30_000) -> None: ...
    def now_ms(self) -> int:
        """The time in milliseconds; monotonic."""

class Follower:
    """The state of one follower."""

    node_id: int
    log_end_offset: int
    """The offset of its last fetch; -1: it has not fetched since this broker leads."""
    log_start_offset: int
    broker_epoch: int
    """The value in its last fetch; -1: it had none."""
    last_caught_up_ms: int
    last_fetch_ms: int
    in_isr: bool
    proposed: bool
    def __init__(self, node_id: int) -> None: ...

class ReplicaState:
    """The progress of the replicas of a partition that is led here, and its waiters."""

    epoch_start_offset: int
    insync_replicas: int
    most_waiting: int
    """The most requests of one connection that waited at a time; lowered after a wait in vain."""
    passes: int
    """Moves of the high watermark during which no follower waits for more records, after a wait in
    vain.
    """
    lost_parts: tuple[tuple[int, int], ...]
    """(first offset, next offset) of damage that no replica can repair: followers continue after
    it.
    """
    def __init__(self, core: Any, context: ReplicationContext) -> None: ...
    @property
    def waiting(self) -> int:
        """The number of waiters for the high watermark."""

    def follower(self, node_id: int) -> Follower | None:
        """The Follower with that id, or None."""
