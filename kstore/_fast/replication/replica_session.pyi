"""The partitions to fetch from one leader; see replica_session.pyx."""

from typing import Any

from kstore._fast.broker.partition import Partition
from kstore.types import TopicPartition

class Followed:
    """One partition that is copied from its leader."""

    partition: Partition
    key: TopicPartition
    leader_epoch: int
    state: Any
    """The owner's data for it."""
    throttled: bool
    """Its bytes count towards the follower's throttle."""
    leader_high_watermark: int
    """As last reported by the leader."""
    held: bool
    """It is not fetched until it is released."""
    def __init__(
        self, partition: Partition, key: TopicPartition, leader_epoch: int, *, held: bool = False
    ) -> None: ...

class ReplicaSession:
    """The partitions that are copied from one leader, and what the leader knows of them."""

    leader_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int
    active: int
    """The number of partitions that are fetched."""
    def __init__(self, *, leader_id: int, node_id: int, broker_epoch: int) -> None: ...
    def add(self, followed: Followed) -> None:
        """Start to copy a partition; it replaces one with the same place."""

    def remove(self, followed: Followed) -> None:
        """Stop copying a partition; no effect if another object has its place."""

    def hold(self, followed: Followed) -> None:
        """Do not fetch a partition until it is released; data that still arrives is ignored."""

    def release(self, followed: Followed) -> None:
        """Fetch a partition again, from its log end offset."""

    def tell(self, followed: Followed) -> None:
        """Report a change to the leader at once: the log start offset."""

    def has(self, followed: Followed) -> bool:
        """Whether this object is the one that is copied."""

    def all(self) -> list[Followed]:
        """Every partition that is copied, including held ones."""
