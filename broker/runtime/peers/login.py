"""Authenticates this broker to other brokers if their listener has SASL, before the first request
of each connection.

kstore/net/sasl_client.py has the mechanisms. A connection is not authenticated again when its
session ends (KIP-368): another connection replaces it in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kstore._fast.protocol.framing import FrameSplitter
from kstore.errors import KafkaError, NetworkError
from kstore.net.sasl_client import authenticate
from kstore.net.sasl_login import Login
from kstore.protocol.registry import APIS, decode_response, encode_request

if TYPE_CHECKING:
    from kstore.broker.runtime.node import Node
    from kstore.protocol.schema import Message

__all__ = ["PeerLogin"]

MAX_FRAME_BYTES = 1024 * 1024
USED_PART = 0.8
"""The part of a session's time after which the connection is replaced."""


class PeerLogin:
    """The login of one broker. Raises ConfigError for invalid settings."""

    def __init__(self, node: Node, settings: Mapping[str, Any]) -> None:
        self._node = node
        self._login = Login(settings)
        self._last_errors: dict[str, str] = {}  # by address
        self.user = self._login.user
        """The user name; None if a token contains it."""

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int, tls: Mapping[str, Any]
    ) -> tuple[Any, float | None]:
        """Connect and authenticate. Returns the protocol that ``factory`` created, and for how many
        seconds the connection may be used. Raises OSError if the other broker refuses.
        """
        loop = self._node.loop
        address = f"{host}:{port}"
        transport, talk = await loop.create_connection(_Exchange, host, port, **tls)
        try:
            client = await self._login.client()
            name = f"the broker at {address}"
            lifetime_ms = await authenticate(client, talk.ask, name)
        except KafkaError as problem:
            transport.abort()
            self._report(address, str(problem))
            raise ConnectionError(str(problem)) from None
        except BaseException:
            transport.abort()
            raise
        self._last_errors.pop(address, None)
        protocol = factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return protocol, lifetime_ms / 1000 * USED_PART if lifetime_ms else None

    def _report(self, address: str, problem: str) -> None:
        """Report each error once, since the login is repeated soon."""
        if self._last_errors.get(address) != problem:
            self._last_errors[address] = problem
            self._node.report(problem)


class _Exchange(asyncio.Protocol):
    """Sends requests one after the other until the authentication is complete."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._splitter = FrameSplitter(MAX_FRAME_BYTES)
        self._waiting: asyncio.Future[bytes] | None = None
        self._lost: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called with a response, or a part of one."""
        for frame in self._splitter.feed(data):
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(frame)

    def connection_lost(self, problem: Exception | None) -> None:
        """Called when the connection is lost: the waiting caller gets an error."""
        self._lost = f"it closed the connection{f': {problem}' if problem else ''}"
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(NetworkError(self._lost))

    async def ask(self, request: Message, version: int) -> Message:
        """Send a request and return its response. Raises NetworkError."""
        if self._lost is not None:
            raise NetworkError(self._lost)
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(encode_request(request, version, 0, None))
        frame = await self._waiting
        response: Message = decode_response(frame, APIS[request.API_KEY].response, version)[1]
        return response
