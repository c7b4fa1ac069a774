"""bench/load.py: it counts every answer once, keeps its depth, and notices wrong answers."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from bench import frames
from bench.load import Load
from tests.conformance.wire import read_frame, request_frame

FRAME = request_frame(18, 0, b"")


class Counting(socketserver.ThreadingTCPServer):
    """Answers every frame with ten bytes and counts them."""

    daemon_threads = True
    allow_reuse_address = True
    answered = 0
    lock = threading.Lock()


class Answering(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        connection: socket.socket = self.request
        while True:
            try:
                read_frame(connection)
            except (RuntimeError, OSError):
                return
            with self.server.lock:
                self.server.answered += 1
            connection.sendall(struct.pack(">i", 10) + b"0123456789")


@pytest.fixture
def server() -> Iterator[Counting]:
    """A server of its own per test."""
    with Counting(("127.0.0.1", 0), Answering) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()


@pytest.mark.parametrize("depth", [1, 7])
def test_every_request_is_counted_once(server, depth):
    seen = []
    with Load(server.server_address, [FRAME] * 3, seen.append, depth=depth) as load:
        answers, _ = load.run(60, at_most=200)
    assert answers >= 200
    assert server.answered == answers + 3  # and the first one of each connection
    assert seen == [b"0123456789"] * 6


def test_a_wrong_answer_stops_the_load(server):
    def check(answer: bytes) -> None:
        raise RuntimeError("error 3")

    with pytest.raises(RuntimeError, match="error 3"):
        Load(server.server_address, [FRAME], check)


def test_hand_made_batches_are_read_by_kstores_decoder():
    from kstore.record import decode

    batch = frames.record_batch([b"a", b"", b"c" * 300])
    assert [record.value for record in decode(batch)] == [b"a", b"", b"c" * 300]
