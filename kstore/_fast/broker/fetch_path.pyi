"""Fetch, versions 4 to 18, from the frame to the answer; see fetch_path.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.slots import Slot

class FetchRequest(Slot):
    """One fetch while it is handled; parked, it is its answer's slot and waits for its
    partitions to grow.
    """

    def resume(self) -> None:
        """What was cold is in memory."""
    def answer_now(self) -> None:
        """Answer with what there is, and wait for no disk."""

class FetchPath:
    """The state that all fetches share: the partitions, the sessions and the limits."""

    cache: Any
    """The fetch sessions (broker/state/replication/fetch_session_cache.py)."""
    max_bytes: int
    requests: int
    bytes_out: int
    throttle: Any
    """Holds followers that are behind to a rate (runtime/leader_throttle.py); None: there is none.
    """
    peer_listener: str | None
    """The listener that followers come to, where there are rights; None: any."""
    injected: dict[Any, int] | None
    """Partition to the error that the request at hand is to be told (broker/faults.py)."""
    injected_error: int
    """The error of the whole of it; 0: none."""
    def __init__(
        self,
        table: PartitionTable,
        cache: Any,
        call_later: Callable[..., Any],
        report: Callable[[str], None],
        *,
        max_bytes: int,
    ) -> None: ...
    @property
    def parked(self) -> int:
        """How many fetches wait for data now."""

    def session_partitions(self, session_id: int) -> list[tuple[bytes, int]]:
        """(topic name or id, partition) of what a fetch session asks for."""

    def answer_parked(self) -> None:
        """Answer every waiting fetch with what there is: the broker stops."""
