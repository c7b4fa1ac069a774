"""Produce, versions 3 to 13, from the frame to the response; see produce_path.pyx."""

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
    """(log, end offset) of what must be durable before the current request is answered."""
    admit_transactional: (
        Callable[[Any, str, tuple[int, int], int, list[tuple[Any, int]]], dict[Any, int] | None]
        | None
    )
    """Called with (connection, transactional id, (producer id, epoch), version, [(partition, base
    sequence)]) about partitions in which the producer has no open transaction. Returns the error
    codes of those whose batch must not be appended, or None if that is not known yet; then the
    connection's `admitted` must be called when it is, and the call is repeated. None: all may.
    """
    unpack_later: Callable[[Any, list[tuple[int, bytes, int, int, int]]], None] | None
    """Called with (connection, [(place, batch, max_bytes, codec, level)]) for batches with much
    data: sets a Verdict by place in the connection, then calls its `admitted`. None: they are
    checked at once.
    """
    injected: dict[Any, int] | None
    """Partition to the error with which the current request is refused (broker/faults.py)."""
    injected_after: dict[Any, int] | None
    """The same, but the records are appended."""
    waiting: ProduceWaits
    """The responses that wait for followers."""
    def __init__(
        self,
        table: PartitionTable,
        report: Callable[[str], None],
        *,
        durable: bool = False,
        call_later: Callable[..., Any] | None = None,
    ) -> None:
        """``call_later`` ends waits for followers after the request's timeout; None: nothing
        does.
        """
