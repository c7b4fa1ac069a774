"""What all connections of a broker share; see data_plane.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.fetch_path import FetchPath
from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.produce_path import ProducePath
from kstore._fast.network.loop_watch import LoopWatch
from kstore._fast.network.request_times import RequestTimes

class DataPlane:
    """What all connections of one broker share: the partitions, the paths, the buffers
    and the limits.
    """

    table: PartitionTable
    produce: ProducePath
    fetch: FetchPath
    watch: LoopWatch
    times: RequestTimes
    server: Any
    max_request_bytes: int
    max_queued_bytes: int
    queued_bytes: int
    connections_made: int
    bytes_out: int
    bytes_read: int
    """Of all connections so far; with TLS, decrypted bytes."""
    max_elements: int
    turn_us: int
    """The time for requests of one connection before other connections have their turn."""
    turn_bytes: int
    """The bytes read, and the bytes sent, of one connection before others have their turn."""
    slice_us: int
    """The time for requests of APIs that are handled in turns, of all connections together, before
    others have their turn.
    """
    look_at_peers: Callable[[], object] | None
    """Finds out which other brokers have just ended; None while no other broker is known."""
    runs: Any
    """ProduceRuns (produce_runs.pyx); None before the first connection."""
    faults: Any
    """Injects faults for tests (broker/faults.py); None while there are none."""
    authorizer: Any
    """Decides about Produce, Fetch and Metadata (broker/state/security/authorizer.py); None:
    everything is allowed.
    """
    def __init__(
        self,
        server: Any,
        table: PartitionTable,
        produce: ProducePath,
        fetch: FetchPath,
        *,
        max_request_bytes: int,
        max_queued_bytes: int,
        max_parked: int = 256,
        max_elements: int = 100000,
        watch: LoopWatch | None = None,
    ) -> None: ...
    def serve_api(
        self,
        api_key: int,
        min_version: int,
        max_version: int,
        flexible_from: int,
        cached: bool,
        in_turns: bool = False,
    ) -> None:
        """Serve an API in these versions; cached: its answer depends only on its bytes and
        the image; in_turns: each turn of the loop handles a slice of all such requests.
        """

    def next_turn(self) -> None:
        """All connections have had their turn: those that have more to do continue."""

    def forget_answers(self) -> None:
        """The metadata image has changed: drop cached answers."""

    last_errors: dict[int, int] | None
    """The errors of the answer that `dispatch` has just created, or None."""
    def count_errors(self, api_key: int, found: dict[int, int]) -> int:
        """Count the errors of an answer: code -> number."""

    def request_counts(self) -> dict[int, int]:
        """The number of handled requests of each API key."""

    def open_connections(self) -> list[Any]:
        """The open connections."""

    def close_idle(self, idle_ms: int) -> None:
        """Close connections without a request for that long; free the buffers of inactive
        ones.
        """
