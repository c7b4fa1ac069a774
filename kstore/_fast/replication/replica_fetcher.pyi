"""Copies partitions that another broker leads; see replica_fetcher.pyx."""

from collections.abc import Callable
from typing import Any, Protocol, type_check_only

from kstore._fast.log.append_queue import AppendJob
from kstore._fast.replication.replica_session import Followed, ReplicaSession

@type_check_only
class Owner(Protocol):
    """Decides everything but plain copying. A partition that is passed to the owner is held until
    the owner calls `release`.
    """

    def diverged(
        self, fetcher: ReplicaFetcher, followed: Followed, epoch: int, end_offset: int
    ) -> None:
        """The last epoch of the log has another end on the leader."""

    def refused(self, fetcher: ReplicaFetcher, followed: Followed, error_code: int) -> None:
        """The leader answers with an error."""

    def refused_append(self, fetcher: ReplicaFetcher, followed: Followed, error_code: int) -> None:
        """The leader's batches do not fit: they are damaged, or overlap existing ones."""

    def failed(self, fetcher: ReplicaFetcher, followed: Followed, problem: OSError) -> None:
        """The log can't be written."""

    def start_moved(self, fetcher: ReplicaFetcher, followed: Followed, offset: int) -> None:
        """The leader's log now begins at this offset. The partition is not held."""

    def count_throttled(self, fetcher: ReplicaFetcher, size_bytes: int) -> None:
        """That many bytes of throttled partitions have arrived."""

    def wait_for_disk(self, fetcher: ReplicaFetcher, appended: list[tuple[Any, int]]) -> None:
        """Call the fetcher's `on_disk` when these logs are on disk up to these offsets."""

    def lost(self, fetcher: ReplicaFetcher, problem: Exception | None) -> None:
        """The connection is gone."""

    def report(self, sentence: str) -> None:
        """Report it to the operator."""

class ReplicaJob(AppendJob):
    """The data of one partition, appended by a thread."""

class ReplicaFetcher(ReplicaSession):
    """The protocol of the connection to one leader, for uvloop's buffered reads."""

    durable: bool
    """Copied data is synced before it is acknowledged to the leader."""
    bytes_in: int
    def __init__(
        self,
        owner: Owner,
        call_soon: Callable[..., Any],
        *,
        leader_id: int,
        node_id: int,
        broker_epoch: int,
    ) -> None: ...
    def on_disk(self) -> None:
        """The copied data is on disk: acknowledge it to the leader."""

    def close(self) -> None:
        """End the connection."""

    def fail(self, problem: object) -> None:
        """The data is not a usable answer: the connection ends."""

    def go_on(self) -> None:
        """Continue with an answer after other work of the loop had its turn."""

    def fetch_now(self) -> None:
        """Fetch, if a partition must be added to the leader's session, or no fetch is in
        flight.
        """

    def connection_made(self, transport: Any) -> None:
        """The leader is connected: fetch all partitions to copy."""

    def get_buffer(self, sizehint: int) -> ReplicaFetcher:
        """The buffer for the next bytes: this object exports the memory."""

    def buffer_updated(self, size: int) -> None:
        """Bytes have arrived: handle every complete answer."""

    def eof_received(self) -> bool:
        """The leader sends no more."""

    def pause_writing(self) -> None:
        """Never more than two fetches are in flight."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def connection_lost(self, problem: Exception | None) -> None:
        """The connection is gone; the owner creates another one."""

    @property
    def descriptor(self) -> int:
        """The connection's socket; -1 without one, and with TLS."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""

    @property
    def in_flight(self) -> int:
        """The number of fetches without an answer."""
