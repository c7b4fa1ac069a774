"""One request never holds the loop for all: every API, with each of its arrays as full as 128 KB
are, gives the others their turns, or is refused for its elements before they become objects.
"""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.connection import Connection
from kstore.broker.api import API_TABLE, FAST
from kstore.broker.api.pieces import PIECES, rows_for
from kstore.broker.api.wide import STEP_ELEMENTS, max_elements
from kstore.broker.runtime.broker import Broker
from kstore.broker.runtime.slices import Turns
from kstore.broker.server import Server
from kstore.broker.state.image import Endpoint
from kstore.config import BrokerConfig
from kstore.protocol.api_versions import ApiVersionsRequest
from kstore.protocol.group_admin import DescribeGroupsRequest
from kstore.protocol.groups import HeartbeatRequest
from kstore.protocol.registry import APIS, encode_request
from kstore.protocol.schema import Message
from tests.broker.plane_harness import FakeTransport
from tests.broker.wide_requests import Path as Fields
from tests.broker.wide_requests import array_paths, wide_request

SIZE = 128 * 1024
KEYS = [key for key, row in API_TABLE.items() if row.handler != FAST and not row.internal]
CASES = [
    pytest.param(key, path, distinct, id=f"{APIS[key].name}-{'.'.join(path)}-{distinct}")
    for key in KEYS
    for path in array_paths(key, API_TABLE[key].max_version)
    for distinct in (True, False)
]
FIXED = {
    "timeout_ms": 1, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10, "group_id": "g",
    "transactional_id": None, "generation_id_or_member_epoch": -1,
}  # fmt: skip


class World:
    """A broker without sockets, and the loop's turns counted."""

    def __init__(self, folder: Path, **settings: str) -> None:
        loop = asyncio.get_running_loop()
        given = {"log.dirs": str(folder), "offsets.topic.num.partitions": "1"} | settings
        config = BrokerConfig.load(None, given, {})
        self.server = Server(config, loop)
        self.broker = Broker(config, loop, self.server, self.server.report)
        self.server.publish(self.broker)
        self.broker.open((Endpoint("PLAINTEXT", "localhost", 9092),))
        self.turns = 0
        self.handled: list[Message] = []
        self._loop = loop
        self._counter = loop.call_soon(self._count)

    def _count(self) -> None:
        self.turns += 1
        self._counter = self._loop.call_soon(self._count)

    def watch(self, key: int) -> None:
        """Keep the requests that an API's handler is given."""
        handler, api, most = self.server.handler(key)

        def seen(broker: Any, request: Any, ctx: Any) -> Any:
            self.handled.append(request)
            return handler(broker, request, ctx)

        self.server._handlers[key] = (seen, api, most)

    def connect(self) -> tuple[Connection, FakeTransport]:
        transport = FakeTransport()
        connection = Connection(self.broker.plane, "PLAINTEXT")
        connection.connection_made(transport)
        return connection, transport

    async def answers(self, transport: FakeTransport, count: int) -> list[bytes]:
        """So many answers, or those that came before the end of the connection."""
        while True:
            found, data = [], bytes(transport.written)
            while len(data) >= 4 and len(data) >= 4 + struct.unpack_from(">i", data)[0]:
                size = 4 + struct.unpack_from(">i", data)[0]
                found.append(data[4:size])
                data = data[size:]
            if len(found) >= count or transport.closed:
                return found
            await asyncio.sleep(0)

    async def close(self) -> None:
        self._counter.cancel()
        for coordinator in (self.broker.transactions, self.broker.groups):
            if coordinator is not None:
                await coordinator.close()
        await self.server.finish(1)
        self.broker.close()


def feed(connection: Connection, data: bytes) -> None:
    while data:
        view = memoryview(connection.get_buffer(-1))  # type: ignore[arg-type]
        count = min(len(view), len(data))
        view[:count] = data[:count]
        view.release()
        connection.buffer_updated(count)
        data = data[count:]


def in_world(tmp_path: Path, test: Callable[[World], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        world = World(tmp_path, **settings)
        try:
            await test(world)
        finally:
            await world.close()

    asyncio.run(run())


def elements(message: Any) -> int:
    """Of all arrays together."""
    count = 0
    for name in type(message).SPECS:
        value = getattr(message, name)
        if isinstance(value, list):
            count += len(value) + sum(elements(e) for e in value if hasattr(type(e), "SPECS"))
        elif hasattr(type(value), "SPECS"):
            count += elements(value)
    return count


@pytest.mark.parametrize(("key", "path", "distinct"), CASES)
def test_a_wide_request_gives_others_their_turns(
    tmp_path: Path, key: int, path: Fields, distinct: bool
) -> None:
    version = API_TABLE[key].max_version
    request = wide_request(key, version, path, SIZE, distinct=distinct, **FIXED)
    count = elements(request)

    async def ask(world: World) -> None:
        world.watch(key)
        connection, transport = world.connect()
        feed(connection, encode_request(request, version, 1, "me"))
        answers = await asyncio.wait_for(world.answers(transport, 1), 60)
        most = max_elements(world.broker, key)
        if count > most:
            assert transport.closed
            assert not world.handled, "it was refused before"
            return
        assert len(answers) == 1
        assert world.turns >= count // STEP_ELEMENTS
        if key not in PIECES:
            assert [elements(seen) for seen in world.handled] == [count]
            return
        rows = rows_for(request, version)
        assert rows is not None
        # A row with what is not rows (the configs of a topic) is given whole.
        if path[-1] in (rows.asked, rows.inner and rows.inner.asked):
            most_at_once = max(elements(seen) for seen in world.handled)
            assert most_at_once <= 2 * (PIECES[key].rows + 2)
        assert world.turns >= len(world.handled)

    in_world(tmp_path, ask)


def test_requests_behind_a_wide_one_wait_for_it(tmp_path: Path) -> None:
    groups = [f"g{number}" for number in range(1000)]

    async def ask(world: World) -> None:
        world.watch(15)
        world.watch(12)
        connection, transport = world.connect()
        wide = encode_request(DescribeGroupsRequest(groups=groups), 6, 1, "me")
        narrow = encode_request(HeartbeatRequest(group_id="g", member_id="m"), 4, 2, "me")
        feed(connection, wide + narrow)
        other, told = world.connect()
        feed(other, encode_request(HeartbeatRequest(group_id="g", member_id="m"), 4, 3, "other"))
        await world.answers(told, 1)
        kinds = [type(seen).__name__ for seen in world.handled]
        assert kinds.count("HeartbeatRequest") == 1, "the other's"
        answers = await world.answers(transport, 2)
        assert [answer[:4] for answer in answers] == [b"\0\0\0\1", b"\0\0\0\2"]
        assert type(world.handled[-1]).__name__ == "HeartbeatRequest"

    in_world(tmp_path, ask)


def test_many_wide_requests_take_one_slice_of_each_turn() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        turns, order = Turns(loop), []

        async def work(name: str) -> None:
            for _ in range(3):
                await turns.next()
                order.append((rounds, name))

        rounds = 0
        tasks = [loop.create_task(work(name)) for name in "abc"]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds += 1
        assert [name for _, name in order] == ["a", "b", "c"] * 3
        assert len({number for number, _ in order}) == 9

    asyncio.run(run())


def test_many_small_requests_of_one_client_give_others_their_turns(tmp_path: Path) -> None:
    async def ask(world: World) -> None:
        world.broker.plane.turn_us = 0
        connection, transport = world.connect()
        version = encode_request(
            ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, 1, "me"
        )
        feed(connection, version * 100)
        assert not transport.reading
        assert len(await world.answers(transport, 1)) == 1, "one in each turn"
        before = world.turns
        assert len(await world.answers(transport, 100)) == 100
        assert world.turns - before >= 99
        assert transport.reading

    in_world(tmp_path, ask)


def test_the_limit_on_elements_is_a_setting(tmp_path: Path) -> None:
    async def ask(world: World) -> None:
        connection, transport = world.connect()
        names = [f"g{number}" for number in range(1001)]
        feed(connection, encode_request(DescribeGroupsRequest(groups=names[1:]), 6, 1, "me"))
        assert len(await world.answers(transport, 1)) == 1
        feed(connection, encode_request(DescribeGroupsRequest(groups=names), 6, 2, "me"))
        await world.answers(transport, 2)
        assert transport.closed

    in_world(tmp_path, ask, **{"kstore.request.max.elements": "1000"})


def test_no_full_garbage_collection_looks_at_a_wide_request(tmp_path: Path) -> None:
    full: list[int] = []
    before = gc.get_threshold()

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(info["collected"])

    async def ask(world: World) -> None:
        connection, transport = world.connect()
        names = [f"g{number}" for number in range(60_000)]
        frame = encode_request(DescribeGroupsRequest(groups=names), 6, 1, "me")
        for _ in range(2):  # the first imports what it needs
            transport.written.clear()
            full.clear()
            feed(connection, frame)
            gc.callbacks.append(count)
            assert len(await world.answers(transport, 1)) == 1
            gc.callbacks.remove(count)
        assert not full
        assert gc.get_threshold() == before

    in_world(tmp_path, ask)
