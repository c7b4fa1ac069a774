"""The share of one connection in a turn of the loop, counted in bytes and turns on real sockets. It
gets no more, however much it sends or receives, and the other connections run in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kstore._fast.network.connection import Connection
from kstore._fast.record.builder import build_batch
from kstore.protocol.registry import encode_request
from tests.broker.harness.plane_harness import Plane
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, produce_request

HEARTBEAT, API_VERSIONS = 12, 18
MB = 1 << 20
SHARE = 256 * 1024
SLACK = 4096  # a read is always possible: there is always some room
BATCH = build_batch([b"x" * 900_000])


def produce_frame(index: int = 0) -> bytes:
    return encode_request(produce_request("t", BATCH, first=index), 9, 1, "bulk")


def fetch_frame(max_bytes: int) -> bytes:
    part = fetch_part(max_bytes=max_bytes)
    request = fetch_request("t", part, min_bytes=0, max_bytes=max_bytes, session_epoch=-1)
    return encode_request(request, 12, 1, "bulk")


@pytest.fixture
def plane(plane: Plane) -> Plane:
    plane.plane.turn_bytes = SHARE
    return plane


class Peer:
    """A client's end of a connection: it never waits."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setblocking(False)
        self.pending = memoryview(b"")
        self.received = 0

    def push(self) -> None:
        """Send as much as the socket takes."""
        try:
            while self.pending:
                self.pending = self.pending[self.sock.send(self.pending) :]
        except BlockingIOError:
            pass

    def pull(self) -> int:
        """Read everything that has arrived; returns the number of bytes."""
        size = 0
        try:
            while data := self.sock.recv(MB):
                size += len(data)
        except BlockingIOError:
            pass
        self.received += size
        return size


class Served:
    """The plane behind a socket of uvloop; `turns` runs a step after each turn of the loop."""

    def __init__(self, plane: Plane) -> None:
        self.loop = asyncio.get_running_loop()
        self.plane = plane
        self.peers: list[Peer] = []
        server: Any = plane.server
        server.call_soon = self.loop.call_soon
        server.add_writer, server.remove_writer = self.loop.add_writer, self.loop.remove_writer
        server.answers[API_VERSIONS] = b"\x00" * 10

    async def open(self) -> None:
        make: Callable[[], Any] = lambda: Connection(self.plane.plane, "PLAINTEXT")  # noqa: E731
        self.server = await self.loop.create_server(make, "127.0.0.1", 0)

    async def connect(self) -> Peer:
        peer = Peer(self.server.sockets[0].getsockname())
        self.peers.append(peer)
        count = len(self.peers)
        while len(self.plane.plane.open_connections()) < count:
            await asyncio.sleep(0)
        return peer

    async def close(self) -> None:
        for peer in self.peers:
            peer.sock.close()
        while self.plane.plane.open_connections():
            await asyncio.sleep(0)
        self.server.close()


def on_sockets(plane: Plane, story: Callable[[Served], Any]) -> None:
    async def run() -> None:
        served = Served(plane)
        await served.open()
        try:
            await story(served)
        finally:
            await served.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 120))


def test_a_bulk_connection_reads_its_share_of_a_turn_and_others_go_in_between(plane: Plane) -> None:
    small = encode_request(Ask.Fetch(max_wait_ms=0, session_epoch=-1), 12, 7, "small")

    async def story(served: Served) -> None:
        bulk, other = await served.connect(), await served.connect()
        frame = produce_frame()
        bulk.pending = memoryview(frame * 12)
        waited, longest, asked = 0, 0, 0
        read = plane.plane.bytes_read
        while plane.partition().log_end_offset < 12:
            bulk.push()
            if waited == 0:
                other.sock.send(small)
                asked += 1
            await asyncio.sleep(0)
            now = plane.plane.bytes_read
            assert now - read <= SHARE + SLACK + len(small)
            read = now
            if other.pull():
                longest, waited = max(longest, waited), 0
            else:
                waited += 1
            bulk.pull()
        assert asked >= 12 * len(frame) // (SHARE + SLACK) // 4
        assert longest <= 3, "turns that a small request waited"

    on_sockets(plane, story)


@pytest.mark.slow
def test_many_bulk_connections_share_what_all_may_take(tmp_path: Path) -> None:
    plane = Plane(tmp_path, partitions=16)
    plane.plane.turn_bytes = MB

    async def story(served: Served) -> None:
        peers = [await served.connect() for _ in range(16)]
        for index, peer in enumerate(peers):
            peer.pending = memoryview(produce_frame(index=index) * 8)
        read, taken = plane.plane.bytes_read, []
        while any(plane.partition(index).log_end_offset < 8 for index in range(16)):
            for peer in peers:
                peer.push()
            await asyncio.sleep(0)
            taken.append(plane.plane.bytes_read - read)
            read += taken[-1]
            for peer in peers:
                peer.pull()
        shared = 4 * MB + 16 * SLACK
        # The first turn of such a crowd is not known to be one.
        assert sum(size > shared for size in taken) <= 2
        assert max(taken) <= 16 * (MB + SLACK)

    on_sockets(plane, story)
    plane.close()


def test_a_large_answer_leaves_in_shares_though_the_socket_takes_more(plane: Plane) -> None:
    for _ in range(12):
        plane.partition().log.append(bytearray(BATCH))

    async def story(served: Served) -> None:
        peer = await served.connect()
        peer.sock.send(fetch_frame(12 * MB))
        most, turns = 0, 0
        while peer.received < 12 * len(BATCH):
            await asyncio.sleep(0)
            size = peer.pull()
            most, turns = max(most, size), turns + (size > 0)
        # Bytes of two turns may arrive between two reads of the socket.
        assert most <= 2 * SHARE
        assert turns >= 12 * len(BATCH) // (2 * SHARE)

    on_sockets(plane, story)


def test_tls_is_given_a_share_in_each_turn_and_nothing_while_it_is_full(plane: Plane) -> None:
    plane.partition().log.append(bytearray(BATCH))
    client = plane.client()  # its transport says that it is TLS
    client.feed(fetch_frame(MB))

    def turn() -> int:
        before = len(client.transport.written)
        calls, plane.loop.soon = plane.loop.soon, []
        for callback, args in calls:
            callback(*args)
        return len(client.transport.written) - before

    assert len(client.transport.written) == SHARE
    assert not client.transport.reading, "its next request waits"
    assert turn() == SHARE
    client.connection.pause_writing()
    assert turn() == 0
    assert not plane.loop.soon, "only the transport can go on"
    client.connection.resume_writing()
    while turn():
        pass
    [answer] = client.raw_answers()
    assert BATCH[61:] in answer
    assert client.transport.reading


def test_tls_is_closed_when_the_last_share_is_handed_over(plane: Plane) -> None:
    plane.partition().log.append(bytearray(BATCH))
    client = plane.client()
    client.feed(fetch_frame(MB))
    client.connection.close()
    assert not client.transport.closed
    plane.loop.turn()
    assert client.transport.closed
    assert len(client.raw_answers()) == 1


def spin() -> bytes:
    """An answer that takes longer than a slice of `served_in_slices`."""
    end = time.perf_counter() + 20e-6
    while time.perf_counter() < end:
        pass
    return b"\x00" * 6


def heartbeat_frame(correlation_id: int) -> bytes:
    request = Ask.Heartbeat(group_id="g", generation_id=1, member_id=f"m{correlation_id}")
    return encode_request(request, 3, correlation_id, "member")


def test_requests_of_all_members_of_a_group_share_one_slice_of_a_turn(plane: Plane) -> None:
    plane.plane.slice_us = 1  # of two in a turn the second would have to wait
    plane.server.answers[HEARTBEAT] = spin
    small = encode_request(Ask.Fetch(max_wait_ms=0, session_epoch=-1), 12, 7, "small")

    async def story(served: Served) -> None:
        members = [await served.connect() for _ in range(20)]
        other, gone = await served.connect(), members.pop()
        for number, member in enumerate((gone, *members, members[0])):
            member.sock.send(heartbeat_frame(number))
        handled, answered, turns = plane.server.dispatched, 0, 0
        while len(handled) < 20:
            before = len(handled)
            other.sock.send(small)
            await asyncio.sleep(0)
            turns += 1
            answered += other.pull() > 0
            assert len(handled) - before <= 1
            if turns == 5:
                gone.sock.close()
        assert answered >= turns - 2  # requests of other types are not behind them
        first = [body for key, _, _, body in handled if key == HEARTBEAT]
        assert len(set(first)) == len(first) in (20, 21)
        await asyncio.sleep(0)
        assert [member.pull() > 0 for member in members] == [True] * 19

    on_sockets(plane, story)


def test_a_request_that_waits_for_its_slice_keeps_its_place_on_its_connection(plane: Plane) -> None:
    plane.plane.slice_us = 1
    plane.server.answers[HEARTBEAT] = spin

    async def story(served: Served) -> None:
        peer = await served.connect()
        versions = encode_request(Ask.ApiVersions(), 0, 99, "member")
        peer.sock.send(b"".join(heartbeat_frame(n) for n in range(3)) + versions)
        answers = b""
        while len(answers) < 3 * 14 + 18:
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                answers += peer.sock.recv(MB)
        ids, place = [], 0
        while place < len(answers):
            size, correlation_id = struct.unpack_from(">ii", answers, place)
            ids.append(correlation_id)
            place += 4 + size
        assert ids == [0, 1, 2, 99]

    on_sockets(plane, story)
