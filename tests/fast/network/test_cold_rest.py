"""The rest of a slice that a full socket did not accept is sent later, when it may have left the
page cache: a thread loads it, and the loop waits for no disk. On real sockets and files.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.harness.plane_harness import Plane
from tests.fast.disk.dropped_pages import drop_pages
from tests.fast.network.test_fair_turns import BATCH, Peer, Served, fetch_frame, on_sockets

pytestmark = pytest.mark.on_disk

BATCHES = 24
SIZE = BATCHES * len(BATCH)


@pytest.fixture
def plane(plane: Plane) -> Plane:
    for _ in range(BATCHES):
        code, *_ = plane.partition().append_batches(bytearray(BATCH))
        assert code == 0
    return plane


async def begin(served: Served) -> Peer:
    """A peer that has requested everything, and has not read what its socket was full of."""
    pages = served.plane.dir.pages
    pages.serve(served.loop.add_reader, served.loop.remove_reader)
    peer = await served.connect()
    peer.sock.send(fetch_frame(SIZE))
    sent = -1
    while sent != served.plane.plane.bytes_out or sent < SIZE:
        sent = served.plane.plane.bytes_out
        for _ in range(20):
            await asyncio.sleep(0)
    assert pages.cold_reads == 0
    drop_pages(served.plane.partition().log.segments[-1].path)
    return peer


@pytest.mark.slow
def test_the_rest_of_a_slice_is_read_in_by_the_thread(plane: Plane) -> None:
    async def story(served: Served) -> None:
        pages = plane.dir.pages
        peer = await begin(served)
        data = b""
        while len(data) < SIZE:
            await asyncio.sleep(0)
            try:
                data += peer.sock.recv(1 << 20)
            except BlockingIOError:
                continue
        assert data.count(b"x" * 899_000) == BATCHES
        assert pages.cold_reads > 0
        assert pages.cold_bytes + pages.ahead_bytes >= SIZE // 2
        pages.end()

    on_sockets(plane, story)


def test_a_peer_that_leaves_while_its_rest_is_read_in_is_gone(plane: Plane) -> None:
    async def story(served: Served) -> None:
        pages = plane.dir.pages
        peer = await begin(served)
        while pages.cold_reads == 0:
            peer.pull()
            await asyncio.sleep(0)
        peer.sock.close()
        while plane.plane.open_connections():
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert plane.server.reports == []
        pages.end()

    on_sockets(plane, story)
