"""A data plane without sockets: a manual loop, a transport that keeps its bytes, one log dir."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from kstore._fast.broker.fetch_path import FetchPath
from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.produce_path import ProducePath
from kstore._fast.network.connection import Connection
from kstore._fast.network.data_plane import DataPlane
from kstore.broker.api import API_TABLE
from kstore.broker.state.replication.fetch_session_cache import FetchSessionCache
from kstore.log import open_log_dir
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import Message
from kstore.types import TopicPartition

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
NODE_ID = 5


class ManualLoop:
    """call_soon and call_later under the test's control, and a clock that only timers move."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.soon: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.timers: list[Timer] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(delay_s, callback, args)
        timer.due_ms = self.now_ms + round(delay_s * 1000)
        self.timers.append(timer)
        return timer

    def turn(self) -> None:
        """Run what was scheduled, and what that schedules."""
        while self.soon:
            callback, args = self.soon.pop(0)
            callback(*args)

    def fire_timers(self) -> None:
        timers, self.timers = self.timers, []
        self.now_ms = max([self.now_ms, *(timer.due_ms for timer in timers if not timer.cancelled)])
        for timer in timers:
            if not timer.cancelled:
                timer.callback(*timer.args)


class Timer:
    def __init__(self, delay_s: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.delay_s, self.callback, self.args = delay_s, callback, args
        self.cancelled = False
        self.due_ms = 0

    def cancel(self) -> None:
        self.cancelled = True


class FakeTransport:
    """Keeps what is written. It claims to be TLS, so that it alone is written to."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.written = bytearray()
        self.closed = False
        self.reading = True
        self._info = {"peername": (host, 4711), "sockname": ("10.0.0.9", 9092), "sslcontext": True}

    def get_extra_info(self, name: str) -> Any:
        return self._info.get(name)

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close


class FakeServer:
    """The server's side: `answers` has the results of dispatch, by API key."""

    def __init__(self, loop: ManualLoop) -> None:
        self.call_soon = loop.call_soon
        self.reports: list[str] = []
        self.dispatched: list[tuple[int, int, bytes | None, bytes]] = []
        self.answers: dict[int, Any] = {}
        self.parked: list[tuple[Any, Any]] = []
        self.refusal: str | None = None
        self.failures: list[Exception] = []

    def admit(self, connection: Connection) -> str | None:
        return self.refusal

    def lost(self, connection: Connection) -> None: ...

    def report(self, sentence: str, about: str = "") -> None:
        self.reports.append(sentence)

    def closing(self, connection: Connection, reason: str) -> None:
        self.report(f"closing the connection {connection.peer}: {reason}")

    def failed(self, connection: Connection, problem: Exception) -> None:
        self.failures.append(problem)

    def dispatch(
        self, connection: Connection, api_key: int, version: int, correlation_id: int,
        client_id: bytes | None, body: bytes,
    ) -> Any:  # fmt: skip
        self.dispatched.append((api_key, version, client_id, body))
        answer = self.answers[api_key]
        return answer() if callable(answer) else answer

    def park(self, later: Any, slot: Any) -> None:
        self.parked.append((later, slot))


class Plane:
    """The data plane with a topic `t`, and clients connected to it."""

    def __init__(self, folder: Path, *, partitions: int = 2, **limits: Any) -> None:
        self.loop = ManualLoop()
        self.server = FakeServer(self.loop)
        self.dir = open_log_dir(
            str(folder), flush=limits.pop("flush", "os"), **limits.pop("dir", {})
        )
        self.table = PartitionTable(NODE_ID, self.loop.call_soon)
        self.table.replication.clock = lambda: self.loop.now_ms
        self.sessions: FetchSessionCache[Any] = FetchSessionCache(
            limits.pop("max_sessions", 10), iter(range(100, 10_000)).__next__
        )
        self.produce = ProducePath(
            self.table, self.server.report, call_later=self.loop.call_later,
            durable=limits.pop("durable", False),
        )  # fmt: skip
        self.fetch = FetchPath(
            self.table, self.sessions, self.loop.call_later, self.server.report,
            max_bytes=limits.pop("fetch_max_bytes", 55 << 20),
        )  # fmt: skip
        settings = {"max_request_bytes": 1 << 20, "max_queued_bytes": -1, **limits}
        self.plane = DataPlane(self.server, self.table, self.produce, self.fetch, **settings)
        # Requests of a test are handled at once, on any machine.
        self.plane.turn_us = self.plane.turn_bytes = self.plane.slice_us = 1 << 40
        for key, row in API_TABLE.items():
            self.plane.serve_api(
                key, row.min_version, row.max_version, APIS[key].flexible_from, row.cached,
                row.in_turns,
            )  # fmt: skip
        self.add_topic("t", TOPIC_ID, partitions)

    def add_topic(self, name: str, topic_id: UUID, partitions: int) -> TopicEntry:
        """Create a topic that this broker leads, at leader epoch 3."""
        entry = TopicEntry(name.encode(), topic_id.bytes)
        self.table.add_topic(entry)
        for index in range(partitions):
            log = self.dir.log(name, index, topic_id=topic_id)
            self.table.add_partition(
                Partition(entry, index, log, leader_id=NODE_ID, leader_epoch=3)
            )
        return entry

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        found = self.table.partition(topic.encode(), index)
        assert found is not None, TopicPartition(topic, index)
        return found

    def client(self, host: str = "10.0.0.1", listener: str = "PLAINTEXT") -> Client:
        return Client(self, host, listener)

    def close(self) -> None:
        self.dir.close()


class Client:
    """One connection: it sends requests and decodes responses."""

    def __init__(self, plane: Plane, host: str, listener: str = "PLAINTEXT") -> None:
        self.transport = FakeTransport(host)
        self.connection = Connection(plane.plane, listener)
        self.connection.connection_made(self.transport)
        self._asked: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0
        self.client_id = "me"

    def feed(self, data: bytes, piece: int = 1 << 30) -> None:
        feed(self.connection, data, piece)

    def frame(self, version: int, request: Message) -> bytes:
        """A request's frame with a new correlation id."""
        self._correlation_id += 1
        self._asked[self._correlation_id] = (request.API_KEY, version)
        return encode_request(request, version, self._correlation_id, self.client_id)

    def send(self, version: int, request: Message) -> int:
        """Receive a request; returns its correlation id."""
        self.feed(self.frame(version, request))
        return self._correlation_id

    def call(self, version: int, request: Message) -> Any:
        """Send a request and return its response, which must arrive at once."""
        correlation_id = self.send(version, request)
        [(answered, response)] = self.answers()
        assert answered == correlation_id
        return response

    def raw_answers(self) -> list[bytes]:
        """The responses since the last call, without their sizes."""
        found, rest = frames(bytes(self.transport.written))
        self.transport.written.clear()
        assert not rest
        return found

    def answers(self) -> list[tuple[int, Any]]:
        """(correlation id, response) of the responses since the last call."""
        found = []
        for answer in self.raw_answers():
            (correlation_id,) = struct.unpack_from(">i", answer)
            api_key, version = self._asked[correlation_id]
            found.append(
                (correlation_id, decode_response(answer, APIS[api_key].response, version)[1])
            )
        return found

    def produced(self) -> list[list[tuple[int, int]]]:
        """(error code, base offset) of each partition, in the Produce responses since then."""
        return [
            [(row.error_code, row.base_offset) for row in response.responses[0].partition_responses]
            for _, response in self.answers()
        ]


def feed(connection: Connection, data: bytes, piece: int = 1 << 30) -> None:
    """Receive bytes, in pieces of at most this size."""
    while data:
        view = memoryview(connection.get_buffer(-1))  # type: ignore[arg-type]
        count = min(len(view), piece, len(data))
        if count == 0:
            return  # it is closed and accepts nothing more
        view[:count] = data[:count]
        view.release()
        connection.buffer_updated(count)
        data = data[count:]


def frames(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete payloads at the beginning of some bytes, and the rest."""
    found = []
    while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack_from(">i", data)[0]):
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found, data


def framed(payload: bytes) -> bytes:
    """A payload after its size."""
    return struct.pack(">i", len(payload)) + payload
