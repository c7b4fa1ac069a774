"""A simple load generator: ready-made frames over raw sockets, and one epoll loop. It decodes
nothing while it runs. All answers to a frame have one known size, so counting bytes counts answers.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from tests.conformance.wire import exchange

__all__ = ["Load"]


class Load:
    """Connections that each send their own frame again and again, with `depth` of them in flight.

    `check` gets the first and the last answer of each connection, and raises if one is wrong. With
    a depth of 1, `latencies` has the seconds of each answer of the last run.
    """

    def __init__(
        self,
        address: tuple[str, int],
        frames: Sequence[bytes],
        check: Callable[[bytes], None],
        *,
        depth: int = 1,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if tls is not None and depth > 1:
            raise ValueError("over TLS one request at a time: epoll does not see what TLS holds")
        self.depth = depth
        self.latencies: list[float] = []
        self._frames = list(frames)
        self._check = check
        self._sockets = [socket.create_connection(address, timeout=30) for _ in frames]
        if tls is not None:
            self._sockets = [
                tls.wrap_socket(each, server_hostname=address[0]) for each in self._sockets
            ]
        self._poll = select.epoll()
        self._by_fd: dict[int, int] = {}
        self._sizes: list[int] = []
        for index, connection in enumerate(self._sockets):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer = exchange(connection, self._frames[index])
            check(answer)
            self._sizes.append(4 + len(answer))
            self._by_fd[connection.fileno()] = index
            self._poll.register(connection, select.EPOLLIN)

    def run(self, seconds: float, *, at_most: int | None = None) -> tuple[int, float]:
        """Send for this time (or this many requests), and wait for every answer. Returns (answers,
        seconds).
        """
        sends = [[frame * n for n in range(self.depth + 1)] for frame in self._frames]
        waiting = [self.depth] * len(self._frames)
        partial = [0] * len(self._frames)
        buffer = bytearray(1 << 18)
        self.latencies = latencies = []
        begin = time.monotonic()
        answered, sent = 0, self.depth * len(self._frames)
        sent_at = [begin] * len(self._frames)
        for index, connection in enumerate(self._sockets):
            sent_at[index] = time.monotonic()
            connection.sendall(sends[index][self.depth])
        while sent > answered:
            going = time.monotonic() - begin < seconds and (at_most is None or sent < at_most)
            events = self._poll.poll(30)
            if not events:
                raise TimeoutError(
                    f"{sent - answered} requests without an answer for 30 s; bytes of unfinished "
                    f"answers {partial}, whole ones have {self._sizes}"
                )
            for fd, _ in events:
                index = self._by_fd[fd]
                size = self._sockets[index].recv_into(buffer)
                if not size:
                    raise ConnectionError("the broker closed a connection under load")
                done, partial[index] = divmod(partial[index] + size, self._sizes[index])
                if not done:
                    continue
                now = time.monotonic()
                if self.depth == 1:
                    latencies.append(now - sent_at[index])
                answered += done
                waiting[index] -= done
                if going:
                    sent_at[index] = now
                    self._sockets[index].sendall(sends[index][done])
                    sent += done
                    waiting[index] += done
        elapsed = time.monotonic() - begin
        if any(waiting) or any(partial):
            raise RuntimeError("answers changed their size during the run: the count is not right")
        for index, connection in enumerate(self._sockets):
            self._check(exchange(connection, self._frames[index]))
        return answered + len(self._frames), elapsed

    @property
    def answer_bytes(self) -> int:
        """The size of the answer to the first connection's frame, including its size field."""
        return self._sizes[0]

    def close(self) -> None:
        """Close every connection at once, without ports in TIME_WAIT."""
        self._poll.close()
        for connection in self._sockets:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    def __enter__(self) -> Load:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
