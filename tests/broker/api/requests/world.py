"""A broker without sockets for wide requests, whose turns of the event loop are counted."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kstore._fast.network.connection import Connection
from kstore.broker.compose import compose
from kstore.broker.server import Server
from kstore.broker.state.metadata.image import Endpoint
from kstore.config import BrokerConfig
from kstore.protocol.schema import Message
from tests.broker.harness.plane_harness import FakeTransport

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class World:
    """A broker without sockets, and the loop's turns counted."""

    def __init__(self, folder: Path, **settings: str) -> None:
        loop = asyncio.get_running_loop()
        given = {"log.dirs": str(folder), "offsets.topic.num.partitions": "1"}
        given["kstore.log.dir.probe.ms"] = "0"  # small appends are done at once, the first one too
        given |= settings
        config = BrokerConfig.load(None, given, {})
        self.server = Server(config, loop)
        self.broker = compose(config, loop, self.server, self.server.report)
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
        for coordinator in (self.broker.transactions.made, self.broker.groups.made):
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
