"""Connections to other brokers, with several requests in flight at once.

A connection is opened on first use, and again after it was lost. Requests that may wait long at the
other broker have connections of their own, so that they do not delay others. The sender decides
whether to retry.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kstore._fast.protocol.framing import FrameSplitter
from kstore.errors import NetworkError, ProtocolError, RequestTimedOutError
from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.version import installed_version

if TYPE_CHECKING:
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import Endpoint
    from kstore.protocol.schema import Message

__all__ = ["Peers"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
FIRST_BACK_OFF_S = 0.01
LONGEST_BACK_OFF_S = 0.2
MAX_FRAME_BYTES = 512 * 1024 * 1024

# The APIs of one lane share a connection, so their requests arrive in order. Every other API has
# its own connection.
CONTROL, TO_CONTROLLER = "control", "to controller"
LANES: dict[int, str] = {
    4: CONTROL,
    5: CONTROL,
    6: CONTROL,
    7: TO_CONTROLLER,
    56: TO_CONTROLLER,
}
EXTENDED = frozenset({"ListOffsets"})
"""Lanes whose answers have kstore's tagged fields."""


class PeerSecurity(Protocol):
    """How this broker connects to others if a listener has TLS or SASL."""

    @property
    def peer_listener(self) -> str:
        """The inter-broker listener."""

    async def connect(
        self, factory: Callable[[], P], host: str, port: int
    ) -> tuple[P, float | None]:
        """See `Peers.connect`."""


class Peers:
    """The connections to other brokers. All methods run on the broker's loop."""

    def __init__(self, node: Node, metadata: MetadataCache, security: PeerSecurity | None) -> None:
        self.on_closed: list[Callable[[int], object]] = []
        """Called with the id of a broker whose connection was closed by it, or lost."""
        self._node = node
        self._metadata = metadata
        self._security = security
        self._client_id = f"broker-{node.node_id}"
        self._channels: dict[tuple[str, int, str], _Channel] = {}
        self._watched: dict[int, int] = {}  # node to descriptor
        self._poll = select.poll()
        self._addresses: dict[int, set[tuple[str, int]]] = {}  # addresses that were used
        self._closed = False

    async def ask(
        self, node_id: int, request: Message, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        """The answer of the broker with this id, at its current address in the image.

        Raises NetworkError if it is unknown, unreachable (with the OSError as cause) or lost before
        it has answered; RequestTimedOutError if it does not answer in time.
        """
        host, port = self._address(node_id)
        return await self.ask_at(host, port, request, timeout_s)

    async def ask_at(
        self, host: str, port: int, request: Message, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        """As `ask`, for an address that need not be in the image."""
        api = APIS[request.API_KEY]
        version = api.max_version
        channel = self._channel(host, port, LANES.get(api.key, api.name))
        number = channel.next_id()
        frame = encode_request(request, version, number, self._client_id)
        answer = await channel.exchange(frame, number, timeout_s)
        return decode_response(answer, api.response, version)[1]

    def forget(self, node_id: int) -> None:
        """Close the connections to a broker that has left. Its unanswered requests fail at once."""
        for host, port in self._addresses.pop(node_id, ()):
            for key in [k for k in self._channels if k[:2] == (host, port)]:
                self._channels.pop(key).close(f"broker {node_id} is gone")

    def close(self) -> None:
        """Close all connections permanently."""
        self._closed = True
        for channel in self._channels.values():
            channel.close("this broker stops")
        self._channels.clear()

    # ---- availability ----

    def watch(self, node_id: int, descriptor: int) -> None:
        """Let `check_connections` check a connection to a broker."""
        self.unwatch(node_id)
        self._watched[node_id] = descriptor
        self._poll.register(descriptor, select.POLLRDHUP)

    def unwatch(self, node_id: int) -> None:
        """Stop watching a connection."""
        descriptor = self._watched.pop(node_id, None)
        if descriptor is not None:
            self._poll.unregister(descriptor)

    def check_connections(self) -> None:
        """Report connections that have ended, also if the loop has not noticed it yet: a client
        that lost its leader at the same moment must not be sent to that leader again.
        """
        ended = {descriptor for descriptor, _ in self._poll.poll(0)}
        for node_id in [node for node, each in self._watched.items() if each in ended]:
            self.unwatch(node_id)
            for callback in self.on_closed:
                callback(node_id)

    # ---- addresses ----

    def endpoint(self, node_id: int) -> Endpoint | None:
        """The address of a broker for other brokers. None if the broker is not alive."""
        known = self._metadata.image.brokers.get(node_id)
        return None if known is None else self.endpoint_of(known.endpoints)

    def endpoint_of(self, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        """The address for brokers among these endpoints: that of inter.broker.listener.name, or the
        first one (of security.inter.broker.protocol).
        """
        name = (self._node.config["inter.broker.listener.name"] or "").upper()
        if self._security is not None:
            name = self._security.peer_listener
        named = (end for end in endpoints if end.listener.upper() == name)
        return next(named, endpoints[0] if endpoints else None)

    async def connect(
        self, factory: Callable[[], P], host: str, port: int
    ) -> tuple[P, float | None]:
        """Open a connection to another broker. Returns its protocol, and for how many seconds it
        may be used (None: without limit). Raises OSError.
        """
        if self._security is not None:
            return await self._security.connect(factory, host, port)
        _, protocol = await self._node.loop.create_connection(factory, host, port)
        return protocol, None

    def _address(self, node_id: int) -> tuple[str, int]:
        endpoint = self.endpoint(node_id)
        if endpoint is None:
            raise NetworkError(f"broker {node_id} is not alive")
        address = (endpoint.host, endpoint.port)
        self._addresses.setdefault(node_id, set()).add(address)
        return address

    def _channel(self, host: str, port: int, lane: str) -> _Channel:
        if self._closed:
            raise NetworkError("this broker stops")
        channel = self._channels.get((host, port, lane))
        if channel is None:
            hello = self._hello if lane in EXTENDED else None
            channel = _Channel(self._node.loop, self.connect, self._closed_by, hello, host, port)
            self._channels[host, port, lane] = channel
        return channel

    def _hello(self, number: int) -> bytes:
        """The first request of a connection. It asks for kstore's tagged fields in responses."""
        request = ApiVersionsRequest(
            client_software_name="kstore", client_software_version=installed_version(),
            extension_fields=True,
        )  # fmt: skip
        version = APIS[request.API_KEY].max_version
        return encode_request(request, version, number, self._client_id)

    def _closed_by(self, host: str, port: int) -> None:
        """The broker at this address has closed a connection."""
        for node in self._metadata.image.brokers.values():
            endpoint = self.endpoint_of(node.endpoints)
            if endpoint is not None and (endpoint.host, endpoint.port) == (host, port):
                for callback in self.on_closed:
                    callback(node.node_id)


class _Requested(NamedTuple):
    """An unanswered request; its sender may have given up."""

    correlation_id: int
    frame: bytes
    answer: asyncio.Future[bytes]


class _Channel:
    """One lane to one broker: its connection, opened on first use and again when needed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Callable[[Callable[[], _Link], str, int], Awaitable[tuple[_Link, float | None]]],
        closed_by: Callable[[str, int], None],
        hello: Callable[[int], bytes] | None,
        host: str,
        port: int,
    ) -> None:
        self._loop = loop
        self._connect_to = connect
        self._closed_by = closed_by
        self._hello = hello
        self._host = host
        self._port = port
        self._link: _Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._ending: _Link | None = None  # no more requests are sent on it
        self._unsent: list[_Requested] = []  # while there is no connection
        self._last_id = -1
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False

    def next_id(self) -> int:
        """A correlation id for a request of this channel."""
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        return self._last_id

    async def exchange(self, frame: bytes, correlation_id: int, timeout_s: float) -> bytes:
        """Send a frame after those of earlier calls. Returns the response's frame from its
        correlation id on.
        """
        if self._closed:
            raise NetworkError(f"the connection to {self._name} was abandoned")
        requested = _Requested(correlation_id, frame, self._loop.create_future())
        if self._link is not None:
            self._link.send(requested)
        else:
            self._unsent.append(requested)
            self._make()
        try:
            async with asyncio.timeout(timeout_s):
                return await requested.answer
        except TimeoutError:
            sentence = f"{self._name} has not answered within {timeout_s:g} s"
            for link in filter(None, (self._link, self._ending)):
                if link.awaits(requested):
                    link.drop(sentence)  # later requests would wait for it
            raise RequestTimedOutError(sentence) from None

    def close(self, reason: str) -> None:
        """Close the channel. Unanswered and later requests fail."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for link in filter(None, (self._link, self._ending)):
            link.drop(reason)
        self._fail_unsent(reason)

    @property
    def _name(self) -> str:
        return f"the broker at {self._host}:{self._port}"

    def _make(self) -> None:
        """Connect, unless that is in progress. Requests keep their order when a connection is
        replaced.
        """
        if self._connecting is None and self._ending is None:
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            wait_s = self._retry_at - self._loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                link, usable_s = await self._connect_to(
                    lambda: _Link(self._name, self._lost), self._host, self._port
                )
        except (OSError, TimeoutError) as problem:
            pause_s = min(FIRST_BACK_OFF_S * 2**self._failures, LONGEST_BACK_OFF_S)
            self._failures = min(self._failures + 1, 16)
            self._retry_at = self._loop.time() + pause_s
            self._fail_unsent(f"{self._name} can't be reached: {problem or 'no answer'}", problem)
        else:
            self._connected(link, usable_s)
        finally:
            self._connecting = None

    def _connected(self, link: _Link, usable_s: float | None) -> None:
        self._failures = 0
        if link.lost is not None:
            self._fail_unsent(link.lost)
            return
        self._link = link
        self._greet(link)
        unsent, self._unsent = self._unsent, []
        for requested in unsent:
            if not requested.answer.done():
                link.send(requested)
        if usable_s is not None:
            self._loop.call_later(usable_s, self._retire, link)

    def _greet(self, link: _Link) -> None:
        """Send the first request. Later requests do not wait for the response, since they do not
        depend on it.
        """
        if self._hello is None:
            return
        number = self.next_id()
        hello = _Requested(number, self._hello(number), self._loop.create_future())
        hello.answer.cancel()
        link.send(hello)

    def _retire(self, link: _Link) -> None:
        """Use another connection for later requests, since this one's session ends soon."""
        if self._link is link:
            self._link, self._ending = None, link
            link.end_when_answered(f"its session with {self._name} is over")

    def _lost(self, link: _Link) -> None:
        if self._link is link:
            self._link = None
        if self._ending is link:
            self._ending = None
            if self._unsent and not self._closed:
                self._make()
        if link.closed_there and not self._closed:
            self._closed_by(self._host, self._port)

    def _fail_unsent(self, reason: str, cause: OSError | None = None) -> None:
        unsent, self._unsent = self._unsent, []
        _fail(unsent, reason, cause)


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, name: str, on_lost: Callable[[_Link], None]) -> None:
        self.lost: str | None = None
        """Why it was lost; None while it is open."""
        self.closed_there = False
        """Whether the other end closed it."""
        self._name = name
        self._on_lost = on_lost
        self._transport: Any = None
        self._waiting: deque[_Requested] = deque()
        self._last_words: str | None = None
        self._splitter = FrameSplitter(MAX_FRAME_BYTES)

    def send(self, requested: _Requested) -> None:
        """Send a request. Its response follows those of earlier requests."""
        self._waiting.append(requested)
        self._transport.write(requested.frame)

    def awaits(self, requested: _Requested) -> bool:
        """Whether the request has no response yet."""
        return any(each is requested for each in self._waiting)

    def end_when_answered(self, reason: str) -> None:
        """Close the connection when all its requests are answered."""
        self._last_words = reason
        if not self._waiting:
            self.drop(reason)

    def drop(self, reason: str) -> None:
        """Close the connection; unanswered requests fail."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    # ---- called by the transport ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is open."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called with received bytes. Completes the requests whose responses are complete."""
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except ProtocolError as problem:
            self.drop(f"{self._name} sent an invalid answer: {problem}")

    def connection_lost(self, problem: Exception | None) -> None:
        """Called when the connection is lost: unanswered requests fail."""
        self.closed_there = self.lost is None
        self._end(f"{self._name} closed the connection" + (f": {problem}" if problem else ""))

    def _take(self, frame: bytes) -> None:
        if not self._waiting:
            raise ProtocolError("no request was sent")
        requested = self._waiting.popleft()
        if frame[:4] != requested.correlation_id.to_bytes(4, "big"):
            self._waiting.appendleft(requested)
            raise ProtocolError(f"request {requested.correlation_id} should be answered next")
        if not requested.answer.done():
            requested.answer.set_result(frame)
        if self._last_words is not None and not self._waiting:
            self.drop(self._last_words)

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        self._on_lost(self)
        waiting, self._waiting = self._waiting, deque()
        _fail(waiting, reason)


def _fail(requested: Iterable[_Requested], reason: str, cause: OSError | None = None) -> None:
    for each in requested:
        if not each.answer.done():
            problem = NetworkError(reason)
            problem.__cause__ = cause
            each.answer.set_exception(problem)
