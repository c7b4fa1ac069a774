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
    """Of all connections so far; decrypted, where they use TLS."""
    max_elements: int
    turn_us: int
    """How long the requests of one connection are handled before others have their turn."""
    turn_bytes: int
    """How many bytes of one connection are read, and how many sent, before others have theirs."""
    slice_us: int
    """How long requests of APIs that are done in turns are handled, of all connections together,
    before others have theirs.
    """
    look_at_peers: Callable[[], object] | None
    """Has it known which other brokers have just gone; None while no other is known."""
    runs: Any
    """ProduceRuns (produce_runs.pyx); None before the first connection."""
    faults: Any
    """Who injects faults for tests (broker/faults.py); None while there are none."""
    authorizer: Any
    """Whom Produce, Fetch and Metadata ask (broker/state/security/authorizer.py); None: all is
    allowed.
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
        """Serve an API in these versions; cached: its answer depends on its bytes and
        the image alone; in_turns: of all such requests each turn of the loop does a slice.
        """

    def next_turn(self) -> None:
        """All connections have had their turn: those that wanted more go on."""

    def forget_answers(self) -> None:
        """The metadata image has changed: no pre-encoded answer holds."""

    last_errors: dict[int, int] | None
    """The errors of the answer that `dispatch` has just made; None: it has none."""
    def count_errors(self, api_key: int, found: dict[int, int]) -> int:
        """Count the errors of an answer: code -> how often."""

    def request_counts(self) -> dict[int, int]:
        """How many requests of each API key were handled."""

    def open_connections(self) -> list[Any]:
        """The connections that are open now."""

    def close_idle(self, idle_ms: int) -> None:
        """Close connections without a request for so long; give back the buffers of
        those that rest.
        """
