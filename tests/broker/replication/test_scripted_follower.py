"""A leader on a real socket, with a producer, a consumer and a follower of raw frames."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS, decode_response, encode_request
from tests.beside.waiting import reached
from tests.broker.runtime.replication.replication_harness import (
    TOPIC,
    TOPIC_ID,
    Node,
    new_image,
    run,
)
from tests.record_requests import fetch_request, only, produce_request

PRODUCE_VERSION, FETCH_VERSION = 12, 17
LEADER, FOLLOWER = 1, 2
REPLICAS = (LEADER, FOLLOWER)


class Peer:
    """A connection to the leader: frames out, answers back in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sent: list[tuple[int, int]] = []
        self._number = 0

    @classmethod
    async def to(cls, node: Node) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", node.port))

    def send(self, version: int, request: Any) -> None:
        self._number += 1
        self._sent.append((request.API_KEY, version))
        self._writer.write(encode_request(request, version, self._number, "me"))

    async def answer(self) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        data = await self._reader.readexactly(size)
        api_key, version = self._sent.pop(0)
        return decode_response(data, APIS[api_key].response, version)[1]

    def produce(self, count: int = 1, *, acks: int = -1) -> None:
        batch = build_batch([b"v"] * count, timestamp=1)
        asked = produce_request(TOPIC, batch, acks=acks, timeout_ms=30_000)
        self.send(PRODUCE_VERSION, asked)

    async def produced(self) -> tuple[int, int]:
        """(error code, base offset) of the next answer."""
        part = only(await self.answer())
        return part.error_code, part.base_offset

    def fetch(self, offset: int, *, node: int = -1, wait_ms: int = 30_000) -> None:
        asked = fetch_request(TOPIC_ID, offset, node=node, epoch=1, max_wait_ms=wait_ms)
        self.send(FETCH_VERSION, asked)

    async def fetched(self) -> tuple[int, int, int]:
        """(error code, bytes of records, high watermark) of the next answer."""
        part = only(await self.answer())
        return part.error_code, len(part.records or b""), part.high_watermark

    def close(self) -> None:
        self._writer.close()


def test_a_round_of_replication(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(LEADER, tmp_path / "leader", new_image())
        await node.start()
        node.lead(0, 0, REPLICAS, REPLICAS)
        producer, follower, consumer = [await Peer.to(node) for _ in range(3)]
        size = len(build_batch([b"v"], timestamp=1))

        follower.fetch(0, node=FOLLOWER)
        consumer.fetch(0)
        await reached(lambda: node.plane.fetch.parked == 2)
        for _ in range(3):
            producer.produce()
        error, first, high_watermark = await follower.fetched()
        assert (error, high_watermark) == (0, 0)
        assert first in (size, 2 * size, 3 * size)
        await reached(lambda: node.partition().log_end_offset == 3)
        assert node.plane.produce.waiting.parked == 3

        follower.fetch(2, node=FOLLOWER)  # it has two of the three
        assert [await producer.produced() for _ in range(2)] == [(0, 0), (0, 1)]
        assert await consumer.fetched() == (0, 2 * size, 2)
        assert await follower.fetched() == (0, size, 2)
        follower.fetch(3, node=FOLLOWER)
        assert await producer.produced() == (0, 2)
        node.partition().follow(FOLLOWER, 1)
        assert (await follower.fetched())[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        producer.produce()
        assert await producer.produced() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        for peer in (producer, follower, consumer):
            peer.close()
        node.stop()

    run(story)


def test_many_requests_under_way_are_all_answered_in_order(tmp_path: Path) -> None:
    """A producer has many requests in flight on one connection, a follower copies, and they wait
    for nothing but the network.
    """

    async def story() -> None:
        node = Node(LEADER, tmp_path / "leader", new_image())
        await node.start()
        node.lead(0, 0, REPLICAS, REPLICAS)
        producer, follower = await Peer.to(node), await Peer.to(node)
        count = 500

        async def copy() -> None:
            offset = 0
            while offset < count:
                follower.fetch(offset, node=FOLLOWER)
                await follower.fetched()
                offset = node.partition().log_end_offset
            follower.fetch(offset, node=FOLLOWER, wait_ms=0)
            await follower.fetched()

        copying = asyncio.ensure_future(copy())
        for each in range(count):
            producer.produce(acks=-1 if each % 3 else 1)
        assert [await producer.produced() for _ in range(count)] == [(0, n) for n in range(count)]
        await copying
        assert node.partition().high_watermark == count
        producer.close()
        follower.close()
        node.stop()

    run(story)


def test_a_follower_that_dies_leaves_the_leader_waiting_until_it_is_out_of_the_isr(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        node = Node(LEADER, tmp_path / "leader", new_image())
        await node.start()
        node.table.replication.max_lag_ms = -1  # a replica that is not in sync is not waited for
        node.lead(0, 0, REPLICAS, REPLICAS)
        producer, follower = await Peer.to(node), await Peer.to(node)
        follower.fetch(0, node=FOLLOWER)
        await reached(lambda: node.plane.fetch.parked == 1)
        follower.close()
        await reached(lambda: node.plane.fetch.parked == 0)
        producer.produce()
        await reached(lambda: node.plane.produce.waiting.parked == 1)
        assert node.partition().isr_applied((LEADER,), 1, 0)
        assert await producer.produced() == (0, 0)
        producer.close()
        node.stop()

    run(story)
