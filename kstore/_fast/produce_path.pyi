"""Produce, versions 3 to 13, from the frame to the answer; see produce_path.pyx."""

from collections.abc import Callable

from kstore._fast.partition_table import PartitionTable

class ProducePath:
    """The state that all produce requests share: the partitions, and the counters."""

    requests: int
    batches: int
    bytes_in: int
    def __init__(
        self, table: PartitionTable, report: Callable[[str], None], *, durable: bool = False
    ) -> None: ...
