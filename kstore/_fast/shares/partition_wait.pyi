"""A wait for a partition to change, for code in Python."""

from collections.abc import Callable

from kstore._fast.broker.partition import Partition
from kstore._fast.broker.partition_events import Waiter

class PartitionWait(Waiter):
    """Calls back, on the loop, each time that a partition changes, until close()."""

    def __init__(self, partition: Partition, callback: Callable[[], object]) -> None: ...
    def close(self) -> None:
        """Stop waiting."""
