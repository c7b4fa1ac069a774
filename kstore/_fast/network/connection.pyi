"""One client connection on the loop; see connection.pyx."""

from typing import Any

from kstore._fast.network.data_plane import DataPlane
from kstore._fast.network.request_paths import RequestPaths

class Connection(RequestPaths):
    """One client connection, as uvloop's buffered protocol by duck typing."""

    connection_id: int
    authentication: Any
    """What takes the frames (``receive(frame)``) until the client has shown who it is (runtime/
    authentication.py); None once it has, and on a listener where it needs not.
    """
    max_frame_bytes: int
    """A larger request ends the connection."""
    last_active_ms: int
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

    def rest(self, idle_ms: int) -> None:
        """Close if it has been idle for so long (-1: never); a resting one gives its
        memory back.
        """

    def begin_turn(self) -> None:
        """The loop has begun another turn: what this one took of the last one does not count."""

    def resume(self) -> None:
        """Go on with requests that were read but not handled, then with reading."""

    def tls_object(self) -> Any:
        """The TLS library's view of the connection; None in plain text."""

    def send_frame(self, frame: bytes) -> None:
        """Send an answer that is whole, after those to earlier requests."""

    def mute(self, reason: int = 1) -> None:
        """Handle no request until `unmute` for the same reason (1, 2, 4 ...: the client is over a
        quota); what comes meanwhile waits.
        """

    def unmute(self, reason: int = 1) -> None:
        """Go on with what has come since `mute`."""

    def admitted(self) -> None:
        """Handle the first request that is left once more (produce_path.admit_transactional has not
        known whether it may be), then what has come behind it.
        """

    @property
    def parked(self) -> int:
        """How many requests of this connection wait for their answer."""
