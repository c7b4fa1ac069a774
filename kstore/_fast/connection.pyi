"""One client connection on the loop, and what all connections of a broker share; see connection.pyx."""

from typing import Any

from kstore._fast.fetch_path import FetchPath
from kstore._fast.partition_table import PartitionTable
from kstore._fast.produce_path import ProducePath
from kstore._fast.slots import AnswerSink

class DataPlane:
    """What all connections of one broker share: the partitions, the paths, the buffers and the limits."""

    table: PartitionTable
    produce: ProducePath
    fetch: FetchPath
    server: Any
    max_request_bytes: int
    max_queued_bytes: int
    queued_bytes: int
    connections_made: int
    bytes_out: int
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
    ) -> None: ...
    def serve_api(
        self, api_key: int, min_version: int, max_version: int, flexible_from: int, cached: bool
    ) -> None:
        """Serve an API in these versions; cached: its answer depends on its bytes and the image alone."""

    def forget_answers(self) -> None:
        """The metadata image has changed: no pre-encoded answer holds."""

    def request_counts(self) -> dict[int, int]:
        """How many requests of each API key were handled."""

    def open_connections(self) -> list[Connection]:
        """The connections that are open now."""

    def close_idle(self, idle_ms: int) -> None:
        """Close connections without a request for so long; give back the buffers of those that rest."""

class Connection(AnswerSink):
    """One client connection, as uvloop's buffered protocol by duck typing."""

    connection_id: int
    listener: str
    client_host: str
    peer: str
    def __init__(self, plane: DataPlane, listener: str) -> None: ...
    def connection_made(self, transport: Any) -> None:
        """The peer is connected: ask the server whether it may stay."""

    def get_buffer(self, sizehint: int) -> Connection:
        """Where the next bytes go: this object, which shows the right memory."""

    def buffer_updated(self, size: int) -> None:
        """Bytes have come: handle every whole frame, answer them in one send."""

    def eof_received(self) -> bool:
        """The peer sends no more: no Kafka client closes half, so this is the end."""

    def pause_writing(self) -> None:
        """The transport holds enough unsent bytes: no further request is handled."""

    def resume_writing(self) -> None:
        """The transport has sent most of what it held."""

    def connection_lost(self, problem: Exception | None) -> None:
        """The connection is gone: nothing is answered any more."""

    def close(self) -> None:
        """Close after what is written has been sent."""

    def resume(self) -> None:
        """Go on with requests that were read but not handled, then with reading."""

    def drain(self) -> None:
        """Send the answers that are complete and next in order; go on with what had to wait."""

    @property
    def parked(self) -> int:
        """How many requests of this connection wait for their answer."""
