"""One client connection on the loop; see connection.pyx."""

from typing import Any

from kstore._fast.network.data_plane import DataPlane
from kstore._fast.network.request_paths import RequestPaths

class Connection(RequestPaths):
    """One client connection, as uvloop's buffered protocol by duck typing."""

    connection_id: int
    authentication: Any
    """The handler of frames (``receive(frame)``) until the client has authenticated (runtime/
    authentication.py); None afterwards, and on a listener without authentication.
    """
    max_frame_bytes: int
    """A larger request ends the connection."""
    last_active_ms: int
    def __init__(self, plane: DataPlane, listener: str) -> None: ...
    def connection_made(self, transport: Any) -> None:
        """The peer is connected: ask the server whether it accepts it."""

    def get_buffer(self, sizehint: int) -> Connection:
        """The buffer for the next bytes: this object exports the memory."""

    def buffer_updated(self, size: int) -> None:
        """Bytes have arrived: handle all complete frames, and answer in one send."""

    def eof_received(self) -> bool:
        """The peer sends no more: close, because no Kafka client half-closes."""

    def pause_writing(self) -> None:
        """The transport has enough unsent bytes: handle no further request."""

    def resume_writing(self) -> None:
        """The transport has sent most of its bytes."""

    def connection_lost(self, problem: Exception | None) -> None:
        """The connection is gone: send no more answers."""

    def rest(self, idle_ms: int) -> None:
        """Close if it has been idle for that long (-1: never); an inactive connection frees
        its memory.
        """

    def begin_turn(self) -> None:
        """The loop has begun another turn: reset this connection's share."""

    def resume(self) -> None:
        """Continue with requests that were read but not handled, then with reading."""

    def tls_object(self) -> Any:
        """The TLS library's view of the connection; None in plain text."""

    def send_frame(self, frame: bytes) -> None:
        """Send a complete answer, after the answers to earlier requests."""

    def mute(self, reason: int = 1) -> None:
        """Handle no request until `unmute` for the same reason (1, 2, 4 ...: the client is over a
        quota); requests that arrive wait.
        """

    def unmute(self, reason: int = 1) -> None:
        """Continue with the requests since `mute`."""

    def admitted(self) -> None:
        """Handle the first remaining request again (produce_path.admit_transactional could not
        decide yet), then the requests after it.
        """

    @property
    def parked(self) -> int:
        """How many requests of this connection wait for their answer."""
