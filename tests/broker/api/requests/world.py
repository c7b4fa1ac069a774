"""A broker without sockets for wide requests, whose turns of the event loop are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kstore._fast.network.connection import Connection
from kstore.broker.compose import compose
from kstore.broker.server import Server
from kstore.broker.state.metadata.image import Endpoint
from kstore.config import BrokerConfig
from kstore.protocol.registry import encode_request
from kstore.protocol.schema import Message
from tests.broker.harness.plane_harness import FakeTransport, feed, frames

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
        """This number of answers, or those before the end of the connection."""
        while True:
            found, _ = frames(bytes(transport.written))
            if len(found) >= count or transport.closed:
                return found
            await asyncio.sleep(0)

    async def ask(self, request: Message, version: int) -> bytes:
        """The answer to a request on a separate connection."""
        connection, transport = self.connect()
        feed(connection, encode_request(request, version, 1, "me"))
        (answer,) = await asyncio.wait_for(self.answers(transport, 1), 60)
        return answer

    async def close(self) -> None:
        self._counter.cancel()
        for coordinator in (self.broker.transactions.made, self.broker.groups.made):
            if coordinator is not None:
                await coordinator.close()
        await self.server.finish(1)
        self.broker.close()


def in_world(tmp_path: Path, test: Callable[[World], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        world = World(tmp_path, **settings)
        try:
            await test(world)
        finally:
            await world.close()

    asyncio.run(run())
