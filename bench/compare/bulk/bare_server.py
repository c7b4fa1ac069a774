"""The minimum work of a broker: a process that receives frames, writes them unchanged to a file,
and answers each with as many bytes as a broker would. It checks nothing and stores no state.

`python -m bench.compare.bulk.bare_server FILE ANSWER_BYTES` prints its port, and ends at the end of
its input.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys

__all__ = ["Peer", "serve"]

READ_BYTES = 1 << 20
FRAME_BYTES = 256 << 20
SPARE_BYTES = 64 << 20  # of disk space, reserved at a time, as a broker does


class Peer:
    """One connection, and its incomplete frame."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.held = bytearray(READ_BYTES)
        self.size = 0

    def receive(self) -> bool:
        """True if the peer is still connected."""
        if len(self.held) - self.size < READ_BYTES // 2:
            self.held.extend(bytes(len(self.held)))
        try:
            got = self.connection.recv_into(memoryview(self.held)[self.size :])
        except ConnectionResetError:
            return False
        self.size += got
        return got > 0

    def whole_frames(self) -> tuple[int, list[int]]:
        """The number of bytes of complete frames, and the start of each."""
        used, starts = 0, []
        while self.size - used >= 4:
            (size,) = struct.unpack_from(">i", self.held, used)
            if not 8 <= size <= FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            if self.size - used < 4 + size:
                break
            starts.append(used)
            used += 4 + size
        return used, starts

    def drop(self, used: int) -> None:
        """Drop the first bytes."""
        self.held[: self.size - used] = self.held[used : self.size]
        self.size -= used


def serve(path: str, answer_bytes: int) -> None:
    """Serve until the input ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    head, rest = struct.pack(">i", answer_bytes - 4), bytes(answer_bytes - 8)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    poll = select.epoll()
    for fileno in (listener.fileno(), sys.stdin.fileno()):
        poll.register(fileno, select.EPOLLIN)
    clients: dict[int, Peer] = {}
    written = spare = 0
    while True:
        for fileno, _ in poll.poll():
            if fileno == sys.stdin.fileno():
                return
            if fileno == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[connection.fileno()] = Peer(connection)
                poll.register(connection.fileno(), select.EPOLLIN)
                continue
            client = clients[fileno]
            if not client.receive():
                poll.unregister(fileno)
                clients.pop(fileno).connection.close()
                continue
            used, starts = client.whole_frames()
            if not starts:
                continue
            ids = [bytes(client.held[start + 8 : start + 12]) for start in starts]
            if written + used > spare:
                spare = written + used + SPARE_BYTES
                os.posix_fallocate(fd, written, spare - written)
            written += os.pwrite(fd, memoryview(client.held)[:used], written)
            client.connection.sendall(b"".join(head + each + rest for each in ids))
            client.drop(used)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
