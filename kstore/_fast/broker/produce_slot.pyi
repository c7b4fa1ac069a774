"""A Produce answer (acks=all) that waits for the followers; see produce_slot.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.replica_state import CommitWait
from kstore._fast.broker.slots import Slot

class PartWait(CommitWait):
    """One partition of a request waits for the high watermark."""

class ProduceSlot(Slot):
    """The place of an answer that waits for the high watermark of each of its partitions."""

class ProduceWaits:
    """All Produce answers that wait, and the one timer that ends the longest waits."""

    def __init__(self, table: PartitionTable, call_later: Callable[..., Any] | None) -> None: ...
    @property
    def parked(self) -> int:
        """How many answers wait now."""

    def expire(self) -> None:
        """Answer those whose time is over, and set the timer for the next."""
