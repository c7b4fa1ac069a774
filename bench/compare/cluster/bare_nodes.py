"""Three processes that act as a cluster for a producer, and do only what a cluster must do.

Each leads one partition. It writes the received bytes to a file, sends them to the two others with
sendfile, and acknowledges them when both have written them. It checks nothing and keeps no state.
One piece at a time is in flight to each follower, because a follower of kstore has one fetch in
flight. `serve` prints two ports, reads the ports of all nodes as a line of JSON, and ends when its
input ends.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Self

from bench.compare.bulk.bare_server import Peer
from bench.compare.cluster.bare_answers import HOST, answer

__all__ = ["BareNodes", "serve"]

SIZE = 3
SPARE_BYTES = 64 << 20  # of disk space, reserved at a time, as a broker does
PIECE_BYTES = 128 << 10  # always fits in a socket's buffer, so that no node waits for another
SEND_BUFFER_BYTES = 1 << 20
HEAD_BYTES = 512  # the part of a request before its batch fits in it
ROOT = Path(__file__).parents[3]


class _File:
    """A node's file of one partition."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.end = self._spare = 0

    def append(self, data: memoryview) -> None:
        if self.end + len(data) > self._spare:
            self._spare = self.end + len(data) + SPARE_BYTES
            os.posix_fallocate(self.fd, self.end, self._spare - self.end)
        self.end += os.pwrite(self.fd, data, self.end)


def _peer(connection: socket.socket) -> Peer:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Peer(connection)


class _Follower:
    """The connection to one follower: the bytes that were sent to it and that it has written."""

    def __init__(self, connection: socket.socket, number: int, led: _File) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        connection.sendall(struct.pack(">i", number))
        self.peer = _peer(connection)
        self._led = led
        self._sent = self.written = 0

    def send(self) -> None:
        """Send the next piece, unless one is in flight."""
        size = min(self._led.end - self._sent, PIECE_BYTES)
        if self._sent > self.written or not size:
            return
        self.peer.connection.send(struct.pack(">i", size), socket.MSG_MORE)
        until = self._sent + size
        while self._sent < until:
            self._sent += os.sendfile(
                self.peer.connection.fileno(), self._led.fd, self._sent, until - self._sent
            )

    def acknowledged(self) -> None:
        """The follower has written the piece in flight."""
        if self.peer.connection.recv(1):
            self.written = self._sent


class _Node:
    """One of the three nodes."""

    def __init__(self, number: int, folder: Path) -> None:
        self._number = number
        self._files = [_File(folder / f"{number}-{each}") for each in range(SIZE)]
        self._led = self._files[number]
        self._clients = socket.create_server((HOST, 0))
        self._leaders = socket.create_server((HOST, 0))
        print(self._clients.getsockname()[1], self._leaders.getsockname()[1], flush=True)
        ports = json.loads(sys.stdin.readline())
        self._client_ports = [port for port, _ in ports]
        self._poll = select.epoll()
        self._followers: dict[int, _Follower] = {}
        self._copied: dict[int, tuple[Peer, _File]] = {}
        self._producers: dict[int, Peer] = {}
        self._unanswered: deque[tuple[int, Peer, bytes]] = deque()
        for other, (_, port) in enumerate(ports):
            if other != number:
                connection = socket.create_connection((HOST, port))
                self._followers[connection.fileno()] = _Follower(connection, number, self._led)
        for _ in self._followers:
            connection, _ = self._leaders.accept()
            (leader,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            self._copied[connection.fileno()] = _peer(connection), self._files[leader]

    def serve(self) -> None:
        """Run until the input or another node ends."""
        ends, comes = sys.stdin.fileno(), self._clients.fileno()
        for fileno in (ends, comes, *self._followers, *self._copied):
            self._poll.register(fileno, select.EPOLLIN)
        while True:
            for fileno, _ in self._poll.poll():
                if fileno in self._producers:
                    self._take(fileno)
                elif fileno in self._copied:
                    if not self._copy(*self._copied[fileno]):
                        return
                elif fileno in self._followers:
                    self._commit(self._followers[fileno])
                elif fileno == comes:
                    connection, _ = self._clients.accept()
                    self._producers[connection.fileno()] = _peer(connection)
                    self._poll.register(connection.fileno(), select.EPOLLIN)
                else:
                    return

    def _take(self, fileno: int) -> None:
        """Handle a producer's requests. Requests that store nothing come alone, and are answered at
        once.
        """
        peer = self._producers[fileno]
        if not peer.receive():
            self._poll.unregister(fileno)
            self._producers.pop(fileno).connection.close()
            return
        used, starts = peer.whole_frames()
        for start in starts:
            head = bytes(peer.held[start + 4 : start + HEAD_BYTES])
            output, stored = answer(head, self._client_ports, SIZE)
            if stored:
                self._unanswered.append((self._led.end + used, peer, output))
            else:
                peer.connection.sendall(output)
        if starts and stored:
            self._led.append(memoryview(peer.held)[:used])
            for follower in self._followers.values():
                follower.send()
        peer.drop(used)

    def _copy(self, leader: Peer, file: _File) -> bool:
        """Copy what a leader has sent. Returns True while it runs."""
        if not leader.receive():
            return False
        used, starts = leader.whole_frames()
        if starts:
            file.append(memoryview(leader.held)[4:used])
            leader.connection.sendall(b"\x00")
            leader.drop(used)
        return True

    def _commit(self, follower: _Follower) -> None:
        """Acknowledge what both followers have written, with one send for each producer."""
        follower.acknowledged()
        follower.send()
        reached = min(each.written for each in self._followers.values())
        output: dict[Peer, bytes] = {}
        while self._unanswered and self._unanswered[0][0] <= reached:
            _, peer, frame = self._unanswered.popleft()
            output[peer] = output.get(peer, b"") + frame
        for peer, frames in output.items():
            peer.connection.sendall(frames)


def serve(number: int, folder: str) -> None:
    """Run one node in this process."""
    _Node(number, Path(folder)).serve()


class BareNodes:
    """The three processes; a context manager that starts and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.bootstrap = ""

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process in self.processes]

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        ports = []
        for number in range(SIZE):
            code = f"from {__name__} import serve; serve({number}, {str(self.folder)!r})"
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            self.processes.append(process)
        for process in self.processes:
            assert process.stdout is not None
            ports.append([int(port) for port in process.stdout.readline().split()])
        for process in self.processes:
            print(json.dumps(ports), file=process.stdin, flush=True)
        self.bootstrap = ",".join(f"{HOST}:{port}" for port, _ in ports)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        shutil.rmtree(self.folder)
