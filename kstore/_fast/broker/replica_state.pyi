"""The leader's view of one replicated partition: followers' offsets, the high watermark, and who
waits for it; see replica_state.pyx.
"""

from collections.abc import Callable
from typing import Any

class CommitWait:
    """Whoever waits until the high watermark has reached an offset."""

class ReplicationContext:
    """What the replicated partitions of a broker share: the clock, the lag that is borne, and which
    brokers live.
    """

    clock: Callable[[], int] | None
    """Milliseconds that only go up; None: the machine's."""
    max_lag_ms: int
    """replica.lag.time.max.ms"""
    live: dict[int, int] | None
    """Node id to broker epoch of the brokers that live; None: nobody has told yet. Replace it and
    call advance() of the partitions that are led.
    """
    racks: dict[int, bytes]
    """Node id to rack, of brokers that have one."""
    def __init__(self, *, max_lag_ms: int = 30_000) -> None: ...
    def now_ms(self) -> int:
        """Milliseconds that only go up."""

class Follower:
    """What is known of one follower."""

    node_id: int
    log_end_offset: int
    """The offset of its last fetch; -1: it has not fetched since this broker leads."""
    log_start_offset: int
    broker_epoch: int
    """Of its last fetch; -1: it did not say."""
    last_caught_up_ms: int
    last_fetch_ms: int
    in_isr: bool
    proposed: bool
    def __init__(self, node_id: int) -> None: ...

class ReplicaState:
    """How far the replicas of a partition that is led here have come, and who waits for them."""

    epoch_start_offset: int
    insync_replicas: int
    lost_parts: tuple[tuple[int, int], ...]
    """(first offset, next offset) of damage that no replica has: followers copy on behind it."""
    def __init__(self, core: Any, context: ReplicationContext) -> None: ...
    @property
    def waiting(self) -> int:
        """How many wait for the high watermark."""

    def follower(self, node_id: int) -> Follower | None:
        """The Follower of that id, or None."""
