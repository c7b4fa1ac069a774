"""What producers reach by themselves: a process that looks like a broker to them, receives what
they send, keeps nothing, and acknowledges all. Every topic is there, and has four partitions.

`serve` prints its port, and ends when its input does.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.frames import Answer, string

__all__ = ["PARTITIONS", "bare_broker", "serve"]

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
VERSIONS = {PRODUCE: 7, FETCH: 4, METADATA: 1, API_VERSIONS: 0}
"""Fetch is not answered, but without it librdkafka sends no batches of magic 2."""
PARTITIONS = 4
HOST = "127.0.0.1"
READ_BYTES = 1 << 20
HEAD_BYTES = 512
"""All that comes before a request's batch fits in it."""
UNSUPPORTED_VERSION = 35
ROOT = Path(__file__).parents[3]


@contextmanager
def bare_broker() -> Iterator[str]:
    """Runs one; its bootstrap address."""
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
        """Answers requests until the peer goes."""
        with self._connection:
            while head := self._take(4):
                size = int.from_bytes(head, "big")
                request = self._take(min(size, HEAD_BYTES))
                left = size - HEAD_BYTES
                while left > 0:
                    left -= self._connection.recv_into(self._buffer, min(left, READ_BYTES)) or left
                answer = self._answer(request)
                self._connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _take(self, size: int) -> bytes:
        """So many bytes; fewer where the peer has gone."""
        try:
            return self._connection.recv(size, socket.MSG_WAITALL)
        except ConnectionResetError:
            return b""

    def _answer(self, head: bytes) -> bytes:
        key, version = struct.unpack_from(">hh", head)
        answer = head[4:8]
        request = Answer(head)  # whose own first field is as long as these two
        request.skip(4)
        request.string()
        if key == API_VERSIONS:
            rows = b"".join(struct.pack(">hhh", each, 0, most) for each, most in VERSIONS.items())
            code = UNSUPPORTED_VERSION if version else 0
            return answer + struct.pack(">hi", code, len(VERSIONS)) + rows
        if key == METADATA:
            return answer + self._metadata([request.string() for _ in range(request.take("i"))])
        if key == PRODUCE:
            return answer + _acknowledged(request, version)
        raise ValueError(f"a request with API key {key}")

    def _metadata(self, topics: list[str]) -> bytes:
        broker = struct.pack(">ii", 1, 0) + string(HOST) + struct.pack(">ih", self._port, -1)
        parts = [broker, struct.pack(">ii", 0, len(topics))]
        for topic in topics:
            parts += [struct.pack(">h", 0), string(topic), struct.pack(">?i", False, PARTITIONS)]
            parts += [struct.pack(">hiiiiii", 0, each, 0, 1, 0, 1, 0) for each in range(PARTITIONS)]
        return b"".join(parts)


def _acknowledged(request: Answer, version: int) -> bytes:
    """Of the one batch that librdkafka sends at a time."""
    if version != VERSIONS[PRODUCE]:
        raise ValueError(f"Produce v{version}")
    request.string()  # the transactional id
    request.skip(6)
    topics, topic, partitions = request.take("i"), request.string(), request.take("i")
    if (topics, partitions) != (1, 1):
        raise ValueError(f"Produce to {topics} topics, {partitions} partitions of the first")
    row = struct.pack(">ihqqq", request.take("i"), 0, 0, -1, 0)
    return struct.pack(">i", 1) + string(topic) + struct.pack(">i", 1) + row + struct.pack(">i", 0)


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
