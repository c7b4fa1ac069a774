"""A Produce response (acks=all) that waits for the followers; see produce_slot.pyx."""

from kstore._fast.broker.replica_state import CommitWait
from kstore._fast.broker.slots import Slot, SlotDeadlines

class PartWait(CommitWait):
    """One partition of a request, which waits for the high watermark."""

class ProduceSlot(Slot):
    """The slot of a response that waits for the high watermark of each of its partitions."""

class ProduceWaits(SlotDeadlines):
    """All Produce responses that wait."""

    @property
    def parked(self) -> int:
        """The number of responses that wait."""
