"""Fetch, versions 4 to 18, from the frame to the response; see fetch_path.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.slots import Slot

class FetchRequest(Slot):
    """A fetch in progress. A parked fetch is the slot of its response, and waits for its partitions
    to grow.
    """

    def resume(self) -> None:
        """Continue: the missing pages are in memory now."""
    def answer_now(self) -> None:
        """Answer with the available data, without waiting for a disk."""

class FetchPath:
    """The state that all fetches share: partitions, sessions and limits."""

    cache: Any
    """The fetch sessions (broker/state/replication/fetch_session_cache.py)."""
    max_bytes: int
    requests: int
    bytes_out: int
    throttle: Any
    """Throttles followers that are behind (runtime/replication/leader_throttle.py); None: no
    throttle.
    """
    peer_listener: str | None
    """The listener of followers, if there are permissions; None: any."""
    injected: dict[Any, int] | None
    """Partition to the error that the current request gets (broker/faults.py)."""
    injected_error: int
    """The top-level error; 0: none."""
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
        """The number of fetches that wait for data."""

    def session_partitions(self, session_id: int) -> list[tuple[bytes, int]]:
        """(topic name or id, partition) of each partition in a fetch session."""

    def answer_parked(self) -> None:
        """Answer every waiting fetch with the available data, because the broker stops."""
