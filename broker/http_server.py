"""A small HTTP server on the broker's loop, with h11 as its parser. Each connection gets one
response. Requests have a size limit. Long bodies are sent in pieces, and other work on the loop
runs between them. http_api.py creates the responses.

A framework would cost 0.25 s of start-up time and 130 modules; h11 costs 30 ms, and only if a
listener is set.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from kstore.config import ConfigError
from kstore.net.transport import ListenError

__all__ = ["Answer", "Request", "address_of", "is_local", "is_loopback", "serve_http"]

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 256 * 1024
MAX_WAITING = 64
"""Limit of connections without a complete request; beyond it, the oldest is closed."""
MAX_STREAMS = 64
"""Limit of simultaneous responses in pieces; further ones are refused. A response in one piece is
never refused.
"""
REQUEST_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
LINGER_S = 1.0
"""How long the rest of a refused request is read and discarded, so that the client receives the
response.
"""
PIECE_BYTES = 65536
JSON = "application/json"
LOGGER = logging.getLogger("kstore.broker")


class Request(NamedTuple):
    """A request. Header names are in lower case; the path has no query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    client_host: str = "127.0.0.1"
    query: str = ""
    """The query string, with its question mark."""


class Answer(NamedTuple):
    """An answer: a body, or its pieces."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Answer]]


class _BadRequestError(Exception):
    """A request that cannot be answered; the status says why."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def address_of(name: str, url: str) -> tuple[str, int]:
    """Host and port of http://HOST:PORT. Without a host, the loopback address. The ConfigError for
    an invalid URL names the setting.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme != "http" or not host or port is None or parts.path.strip("/"):
        raise ConfigError(f"{name} is {url!r}: write it as http://127.0.0.1:PORT", key=name)
    return host, port


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_local(request: Request) -> bool:
    """Whether the request's Host header names this machine. After DNS rebinding, a browser sends
    the name of the other site.
    """
    try:
        host = urlsplit(f"//{request.headers.get('host', 'localhost')}").hostname or ""
    except ValueError:
        return False
    return is_loopback(host)


async def serve_http(name: str, url: str, handler: Handler) -> tuple[asyncio.AbstractServer, str]:
    """Listen on the URL of the setting ``name``; returns the server and its URL, with the actual
    port.

    ConfigError for an invalid URL, ListenError for an address that is in use.
    """
    host, port = address_of(name, url)
    try:
        server = await asyncio.start_server(
            _Listener(handler).serve, host, port, limit=MAX_HEAD_BYTES
        )
    except OSError as problem:
        raise ListenError(
            f"{url} ({name}) can't be listened on: {problem.strerror or problem}; choose another "
            "port"
        ) from None
    bound = server.sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return server, f"http://{shown}:{bound}"


class _Listener:
    """All connections of one listener."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        """Oldest first."""
        self._streams = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's request, and close it."""
        if len(self._waiting) >= MAX_WAITING:
            next(iter(self._waiting)).transport.abort()
            del self._waiting[next(iter(self._waiting))]
        self._waiting[writer] = None
        one = _Connection(reader, writer)
        try:
            answer = await self._answer_to(one)
            if not writer.is_closing():
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._write(one, answer)
                await one.linger()
        except (OSError, TimeoutError):
            pass  # the client disconnected or takes too long
        finally:
            self._waiting.pop(writer, None)
            writer.close()

    async def _answer_to(self, one: _Connection) -> Answer:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await one.read()
        except _BadRequestError as problem:
            return Answer(problem.status, f"{problem}\n".encode(), "text/plain")
        self._waiting.pop(one.writer, None)
        try:
            return await self._handler(request)
        except Exception:
            LOGGER.exception("HTTP: a %s could not be answered", request.method)
            return Answer(500, b"the broker's log says what failed\n", "text/plain")

    async def _write(self, one: _Connection, answer: Answer) -> None:
        if isinstance(answer.body, bytes):
            await one.write(answer, answer.body)
        elif self._streams >= MAX_STREAMS:
            words = b"too many answers are under way: try again\n"
            await one.write(Answer(503, content_type="text/plain"), words)
        else:
            self._streams += 1
            try:
                await one.write_pieces(answer, answer.body)
            finally:
                self._streams -= 1


class _Connection:
    """One request and its answer, between the stream and h11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._is_head = False
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def read(self) -> Request:
        """Read the request; _BadRequestError if it is malformed or too large."""
        try:
            head = await self._next()
            if not isinstance(head, h11.Request):
                raise _BadRequestError(400, "this is not a request")
            self._is_head = head.method == b"HEAD"
            headers = _by_name(head)
            if "transfer-encoding" in headers:
                raise _BadRequestError(411, "a body needs a Content-Length")
            if int(headers.get("content-length", "0")) > MAX_BODY_BYTES:
                raise _BadRequestError(413, f"a body can have at most {MAX_BODY_BYTES} bytes")
            body = bytearray()
            while isinstance(event := await self._next(), h11.Data):
                body += event.data
        except h11.RemoteProtocolError as problem:
            raise _BadRequestError(problem.error_status_hint, str(problem)) from None
        peer = self.writer.get_extra_info("peername")
        path, mark, query = head.target.decode("ascii").partition("?")
        return Request(
            head.method.decode("ascii"),
            path,
            headers,
            bytes(body),
            peer[0] if peer else "",
            mark + query,
        )

    async def _next(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Event):
                return event
            if self._http.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(PIECE_BYTES))

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self.writer.write(data)

    def _begin(self, answer: Answer, *more: tuple[str, str]) -> None:
        headers = [
            ("Content-Type", answer.content_type),
            ("Connection", "close"),
            ("Cache-Control", "no-store"),
            *answer.headers,
            *more,
        ]
        reason = HTTPStatus(answer.status).phrase
        self._send(h11.Response(status_code=answer.status, headers=headers, reason=reason))

    async def write(self, answer: Answer, body: bytes) -> None:
        """Answer with a body."""
        self._begin(answer, ("Content-Length", str(len(body))))
        if not self._is_head:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        await self.writer.drain()

    async def write_pieces(self, answer: Answer, pieces: AsyncIterator[bytes]) -> None:
        """Answer with a body in pieces. Other work on the loop runs between them."""
        self._begin(answer)
        if not self._is_head:
            async for piece in pieces:
                self._send(h11.Data(data=piece))
                await self.writer.drain()
                await asyncio.sleep(0)
        self._send(h11.EndOfMessage())
        await self.writer.drain()

    async def linger(self) -> None:
        """Read and discard the rest of a request that was refused early."""
        if self._http.their_state not in {h11.SEND_BODY, h11.ERROR}:
            return
        if self.writer.can_write_eof():
            self.writer.write_eof()
        async with asyncio.timeout(LINGER_S):
            while await self._reader.read(PIECE_BYTES):
                pass


def _by_name(head: h11.Request) -> dict[str, str]:
    """Headers by name; repeated headers that h11 allows are joined with a comma."""
    found: dict[str, str] = {}
    for name, value in head.headers:
        key, text = name.decode("ascii"), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found
