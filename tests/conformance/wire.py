"""The few bytes of Kafka's protocol that a harness needs before, or instead of, a real client:
framing on a blocking socket and an ApiVersions request. It parses no answer beyond its length
and correlation id, and takes nothing from kstore, so that it can judge it.
"""

from __future__ import annotations

import socket
import struct
import time


class WireError(ConnectionError):
    """The peer closed the connection, or did not answer in time."""


def request_frame(
    api_key: int,
    api_version: int,
    body: bytes,
    *,
    correlation_id: int = 1,
    client_id: str = "probe",
    flexible: bool = False,
) -> bytes:
    """A whole request: size, header v1 (v2 when `flexible`) and the body's bytes."""
    name = client_id.encode()
    header = struct.pack(">hhih", api_key, api_version, correlation_id, len(name)) + name
    if flexible:
        header += b"\x00"
    return struct.pack(">i", len(header) + len(body)) + header + body


API_VERSIONS_FRAME = request_frame(18, 0, b"")


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise WireError("the broker closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_frame(connection: socket.socket) -> bytes:
    """One answer without its length prefix: correlation id first."""
    (size,) = struct.unpack(">i", _read_exactly(connection, 4))
    return _read_exactly(connection, size)


def exchange(connection: socket.socket, frame: bytes) -> bytes:
    """Sends one request and returns its answer without the length prefix."""
    connection.sendall(frame)
    return read_frame(connection)


def wait_for_answer(host: str, port: int, deadline: float, pause_s: float = 0.002) -> float:
    """Asks for ApiVersions until it is answered; returns time.monotonic() at that moment, or
    raises WireError.
    """
    while True:
        try:
            with socket.create_connection((host, port), timeout=5) as connection:
                exchange(connection, API_VERSIONS_FRAME)
                return time.monotonic()
        except OSError:
            if time.monotonic() > deadline:
                raise WireError(f"{host}:{port} did not answer ApiVersions in time") from None
            time.sleep(pause_s)
