"""The rate that producers can reach: a process that looks like a broker to them, receives their
records, stores nothing, and acknowledges everything. Every topic exists, with four partitions.

`serve` prints its port, and ends at the end of its input.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare.cluster.bare_answers import HOST, answer

__all__ = ["PARTITIONS", "bare_broker", "serve"]

PARTITIONS = 4
READ_BYTES = 1 << 20
HEAD_BYTES = 512
"""The part of a request before its batch fits in it."""
ROOT = Path(__file__).parents[3]


@contextmanager
def bare_broker() -> Iterator[str]:
    """Run one. Yields its bootstrap address."""
    with subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        yield f"{HOST}:{int(process.stdout.readline())}"


class _Client:
    """One connection."""

    def __init__(self, connection: socket.socket, port: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._port = connection, port
        self._buffer = memoryview(bytearray(READ_BYTES))

    def serve(self) -> None:
        """Answer requests until the peer disconnects."""
        with self._connection:
            while head := self._take(4):
                size = int.from_bytes(head, "big")
                request = self._take(min(size, HEAD_BYTES))
                left = size - HEAD_BYTES
                while left > 0:
                    left -= self._connection.recv_into(self._buffer, min(left, READ_BYTES)) or left
                self._connection.sendall(answer(request, [self._port], PARTITIONS)[0])

    def _take(self, size: int) -> bytes:
        """Read this many bytes; fewer if the peer has disconnected."""
        try:
            return self._connection.recv(size, socket.MSG_WAITALL)
        except ConnectionResetError:
            return b""


def serve() -> None:
    """The process."""
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    print(port, flush=True)

    def accept() -> None:
        while True:
            client = _Client(listener.accept()[0], port)
            threading.Thread(target=client.serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()
