"""Copying what another broker leads; see replica_fetcher.pyx."""

from collections.abc import Callable
from typing import Any, Protocol, type_check_only

from kstore._fast.log.append_queue import AppendJob
from kstore._fast.replication.replica_session import Followed, ReplicaSession

@type_check_only
class Owner(Protocol):
    """Who decides what is not plain copying. Where a partition is handed over it is held, until
    the owner calls `release`.
    """

    def diverged(
        self, fetcher: ReplicaFetcher, followed: Followed, epoch: int, end_offset: int
    ) -> None:
        """The last epoch of the log ends elsewhere at the leader."""

    def refused(self, fetcher: ReplicaFetcher, followed: Followed, error_code: int) -> None:
        """The leader answers with an error."""

    def refused_append(self, fetcher: ReplicaFetcher, followed: Followed, error_code: int) -> None:
        """What the leader sent does not fit: it is damaged, or overlaps what is there."""

    def failed(self, fetcher: ReplicaFetcher, followed: Followed, problem: OSError) -> None:
        """The log can't be written."""

    def start_moved(self, fetcher: ReplicaFetcher, followed: Followed, offset: int) -> None:
        """The leader's log begins at this offset now. The partition is not held."""

    def count_throttled(self, fetcher: ReplicaFetcher, size_bytes: int) -> None:
        """So many bytes of throttled partitions have come."""

    def wait_for_disk(self, fetcher: ReplicaFetcher, appended: list[tuple[Any, int]]) -> None:
        """Call the fetcher's `on_disk` once these logs are on the disk up to these offsets."""

    def lost(self, fetcher: ReplicaFetcher, problem: Exception | None) -> None:
        """The connection is gone."""

    def report(self, sentence: str) -> None:
        """Tell the operator."""

class ReplicaJob(AppendJob):
    """What came of one partition, appended by a thread."""

class ReplicaFetcher(ReplicaSession):
    """The protocol of the connection to one leader, for uvloop's buffered reads."""

    durable: bool
    """What is copied is forced to the disk before the leader hears of it."""
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
        """What was copied is on the disk: the leader may hear of it."""

    def close(self) -> None:
        """End the connection."""

    def fail(self, problem: object) -> None:
        """What came is no answer, or can't be worked with: the connection ends."""

    def go_on(self) -> None:
        """Go on with an answer after the others of the loop had their turn."""

    def fetch_now(self) -> None:
        """Fetch, if the leader has to hear of a partition that it was not asked for, or none is
        under way.
        """

    def connection_made(self, transport: Any) -> None:
        """The leader is connected: fetch all that is to be copied."""

    def get_buffer(self, sizehint: int) -> ReplicaFetcher:
        """Where the next bytes go: this object, which shows the right memory."""

    def buffer_updated(self, size: int) -> None:
        """Bytes have come: work through every whole answer."""

    def eof_received(self) -> bool:
        """The leader sends no more."""

    def pause_writing(self) -> None:
        """Never more than two fetches are under way."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def connection_lost(self, problem: Exception | None) -> None:
        """The connection is gone; the owner makes another one."""

    @property
    def descriptor(self) -> int:
        """The connection's socket; -1 without one, and with TLS."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""

    @property
    def in_flight(self) -> int:
        """How many fetches are not answered yet."""
