"""What one leader is asked for; see replica_session.pyx."""

from typing import Any

from kstore._fast.broker.partition import Partition
from kstore.types import TopicPartition

class Followed:
    """One partition that is copied from its leader."""

    partition: Partition
    key: TopicPartition
    leader_epoch: int
    state: Any
    """Whatever the owner keeps with it."""
    throttled: bool
    """Its bytes count for the follower's throttle."""
    leader_high_watermark: int
    """As the leader last told it."""
    held: bool
    """It is not fetched until it is released."""
    def __init__(
        self, partition: Partition, key: TopicPartition, leader_epoch: int, *, held: bool = False
    ) -> None: ...

class ReplicaSession:
    """The partitions that are copied from one leader, and what it was told of them."""

    leader_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int
    active: int
    """How many partitions are fetched now."""
    def __init__(self, *, leader_id: int, node_id: int, broker_epoch: int) -> None: ...
    def add(self, followed: Followed) -> None:
        """Copy a partition from now on; one of the same place is replaced."""

    def remove(self, followed: Followed) -> None:
        """Copy a partition no more; nothing happens if it is not this one that is copied."""

    def hold(self, followed: Followed) -> None:
        """Do not fetch a partition until it is released; what still comes of it is left out."""

    def release(self, followed: Followed) -> None:
        """Fetch a partition again, from where its log ends now."""

    def tell(self, followed: Followed) -> None:
        """Let the leader hear at once of what has changed here: the log start offset."""

    def has(self, followed: Followed) -> bool:
        """Whether it is this one that is copied."""

    def all(self) -> list[Followed]:
        """Every partition that is copied, the held ones too."""
