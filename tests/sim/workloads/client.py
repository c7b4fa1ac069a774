"""A Kafka client for simulations: connections with the sans-IO protocol, metadata, retries. The
workloads decide what is sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message
from tests.plain_messages import Ask
from tests.reference.connection import ClientConnection
from tests.sim.history import History
from tests.sim.machines.world import PORT, World

ANSWER_S = 6.0


class UnansweredError(Exception):
    """No answer arrived; it is not known whether the request was done."""


class Client:
    """One client process on a host of its own."""

    def __init__(self, world: World, name: str, brokers: int) -> None:
        self.world = world
        self.name = name
        self.life = world.live(name)
        self.random = self.life.random
        self.leaders: dict[tuple[str, int], tuple[int, int]] = {}
        """Topic and partition to (leader, leader epoch)."""
        self.addresses = {node_id: (f"broker{node_id}", PORT) for node_id in range(brokers)}
        self.topic_ids: dict[str, Any] = {}
        self._links: dict[int, Link] = {}

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """A task of this process."""
        return self.life.spawn(work)

    async def pause(self, least_s: float = 0.02, most_s: float = 0.2) -> None:
        """Wait a moment."""
        await asyncio.sleep(self.random.uniform(least_s, most_s))

    async def ask(
        self, node_id: int, request: Message, *, newest: int = 99, timeout_s: float = ANSWER_S
    ) -> Any:
        """One request and its answer; UnansweredError."""
        return await self.ask_on(await self.link(node_id), request, newest, timeout_s=timeout_s)

    async def link(self, node_id: int) -> Link:
        """The connection to a broker, opened if necessary; UnansweredError."""
        known = self._links.get(node_id)
        if known is not None and not known.closed:
            return known
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._connect(node_id)
        except (OSError, TimeoutError, ProtocolError) as problem:
            raise UnansweredError(str(problem)) from problem

    async def ask_on(
        self, link: Link, request: Message, newest: int = 99, *, timeout_s: float = ANSWER_S
    ) -> Any:
        """One request on a connection, after earlier requests; UnansweredError."""
        try:
            return await link.ask(request, link.version(request, newest), timeout_s)
        except (OSError, TimeoutError, ProtocolError) as problem:
            link.drop()
            raise UnansweredError(str(problem)) from problem

    async def ask_anyone(self, request: Message, **given: Any) -> Any:
        """Send a request to any broker."""
        return await self.ask(self.random.choice(sorted(self.addresses)), request, **given)

    async def until_done(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat until the answer has no error code."""
        while True:
            with suppress(UnansweredError):
                row = await ask()
                if row.error_code == ErrorCode.NONE:
                    return row
            await self.pause()

    async def metadata(self, topic: str) -> Any:
        """A broker's metadata of a topic; UnansweredError."""
        request = Ask.Metadata(topics=[{"name": topic}], allow_auto_topic_creation=False)
        return (await self.ask_anyone(request, newest=12)).topics[0]

    async def refresh(self, topic: str) -> bool:
        """Fetch the metadata of a topic; returns whether there was any."""
        try:
            row = await self.metadata(topic)
        except UnansweredError:
            return False
        if row.error_code != ErrorCode.NONE:
            return False
        self.topic_ids[topic] = row.topic_id
        for partition in row.partitions:
            key = (topic, partition.partition_index)
            if partition.leader_epoch >= self.leaders.get(key, (-1, -1))[1]:
                self.leaders[key] = (partition.leader_id, partition.leader_epoch)
        return True

    async def leader(self, topic: str, partition: int) -> int:
        """The leader of the partition in this client's metadata, which is fetched if necessary."""
        while True:
            leader, _ = self.leaders.get((topic, partition), (-1, -1))
            if leader >= 0:
                return leader
            await self.refresh(topic)
            if self.leaders.get((topic, partition), (-1, -1))[0] < 0:
                await self.pause()

    def forget_leader(self, topic: str, partition: int) -> None:
        """The leader has changed or cannot be reached."""
        if (topic, partition) in self.leaders:
            self.leaders[topic, partition] = (-1, self.leaders[topic, partition][1])

    async def coordinator(self, name: str, *, transactional: bool) -> int:
        """The coordinator of a group or a transactional id; repeats the request until a broker
        knows it.
        """
        request = Ask.FindCoordinator(key_type=int(transactional), coordinator_keys=[name])

        async def ask() -> Any:
            return (await self.ask_anyone(request, newest=4)).coordinators[0]

        return (await self.until_done(ask)).node_id

    async def _connect(self, node_id: int) -> Link:
        link = self._links.get(node_id)
        if link is None or link.closed:
            host, port = self.addresses[node_id]
            _, made = await asyncio.get_running_loop().create_connection(
                lambda: Link(self.name), host, port
            )
            await made.agree()
            # Another task of this client may have been faster.
            link = self._links.get(node_id)
            if link is None or link.closed:
                link = self._links[node_id] = made
            else:
                made.drop()
        return link

    def close(self) -> None:
        """Drop all connections."""
        for link in self._links.values():
            link.drop()
        self._links.clear()


async def make_topic(
    admin: Client,
    brokers: int,
    name: str,
    partitions: int,
    configs: Mapping[str, str] | None = None,
    replicas: int = 3,
) -> None:
    """Create it until it exists. It has no more replicas than there are brokers."""
    replicas = min(brokers, replicas)
    settings = {"min.insync.replicas": "2" if replicas > 1 else "1"} | dict(configs or {})
    rows = [{"name": key, "value": value} for key, value in settings.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": replicas}
    request = Ask.CreateTopics(topics=[topic | {"configs": rows}])

    async def ask() -> Any:
        row = (await admin.ask_anyone(request)).topics[0]
        if row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            row.error_code = ErrorCode.NONE
        elif row.error_code != ErrorCode.NONE:
            admin.world.note(f"the topic {name} is not made: error {row.error_code}")
        return row

    await admin.until_done(ask)


class Workload:
    """A client that works until it is stopped."""

    settled = True
    """Whether no change is under way that a restored store must not undo."""

    def __init__(self, client: Client, history: History) -> None:
        self.client = client
        self.history = history
        self.stopping = False

    def store_copied(self) -> None:
        """The coordination store was copied just now."""

    def store_restored(self) -> None:
        """The store is this copy again: changes of topics and partitions since then are undone."""


class Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, name: str) -> None:
        self.closed = False
        self._machine = ClientConnection(name)
        self._transport: Any = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}

    async def agree(self) -> None:
        """Fetch the versions of the broker."""
        request = Ask.ApiVersions(
            client_software_name="sim", client_software_version="1", extension_fields=True
        )
        rows = (await self.ask(request, 3)).api_keys
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in rows}

    def version(self, request: Message, newest: int) -> int:
        """The highest version that both sides support."""
        key = request.API_KEY
        if key not in self._versions:
            raise ProtocolError(f"the broker does not serve API key {key}")
        return min(self._versions[key][1], APIS[key].max_version, newest)

    async def ask(self, request: Message, version: int, timeout_s: float = ANSWER_S) -> Any:
        """A request and its answer; TimeoutError. asyncio.timeout would cost ten times as much."""
        if self.closed:
            raise ConnectionResetError("the connection is closed")
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._machine.send(request, version)
        self._waiting.append(answer)
        self._transport.write(self._machine.data_to_send())
        timer = loop.call_later(timeout_s, _too_late, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def drop(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for event in self._machine.receive_data(data):
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(event.message)

    def connection_lost(self, problem: Exception | None) -> None:
        self.closed = True
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.done():
                each.set_exception(ConnectionResetError(f"the connection is lost: {problem}"))


def _too_late(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError("no answer in time"))
