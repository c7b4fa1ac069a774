"""Produce, versions 3 to 13, from the frame to the answer; see produce_path.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.produce_slot import ProduceWaits

class ProducePath:
    """The state that all produce requests share: the partitions, and the counters."""

    requests: int
    batches: int
    bytes_in: int
    appended: list[tuple[Any, int]]
    """(log, end offset) of what the request at hand must have on the disk before it is answered."""
    admit_transactional: (
        Callable[[Any, str, tuple[int, int], int, list[tuple[Any, int]]], dict[Any, int] | None]
        | None
    )
    """Asked with (connection, transactional id, (producer id, epoch), version, [(partition, base
    sequence)]) about partitions where the producer has no open transaction: the error codes of
    those whose batch may not be appended, or None if that is not known yet; then the connection's
    `admitted` is to be called when it is, and the question comes again. None: all may.
    """
    unpack_later: Callable[[Any, list[tuple[int, bytes, int, int, int]]], None] | None
    """Called with (connection, [(place, batch, max_bytes, codec, level)]) for batches that hold
    much: gives the connection a Verdict by place, then calls its `admitted`. None: they are looked
    at at once.
    """
    injected: dict[Any, int] | None
    """Partition to the error that the request at hand is refused with (broker/faults.py)."""
    injected_after: dict[Any, int] | None
    """The same, told though the records are appended."""
    waiting: ProduceWaits
    """The answers that wait for followers."""
    def __init__(
        self,
        table: PartitionTable,
        report: Callable[[str], None],
        *,
        durable: bool = False,
        call_later: Callable[..., Any] | None = None,
    ) -> None:
        """``call_later`` ends waits for followers after the request's time; None: nothing does."""
