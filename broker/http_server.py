"""A small HTTP server on the broker's loop: one answer a connection, bounded requests, long bodies
in pieces between which other work has its turn. What is answered is http_api.py's.

A framework would cost a quarter of a second of start-up and 130 modules; this is for a few
questions by tests, scripts and Prometheus.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from kstore.config import ConfigError
from kstore.net.transport import ListenError

__all__ = ["Answer", "Request", "address_of", "is_local", "is_loopback", "serve_http"]

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 256 * 1024
MAX_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 10.0
JSON = "application/json"


class Request(NamedTuple):
    """What was asked. Header names are in lower case; the path has no query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Answer(NamedTuple):
    """What is answered: a body, or its pieces."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Answer]]


class _BadRequestError(Exception):
    """What came is no request that can be answered; the status says why."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def address_of(name: str, url: str) -> tuple[str, int]:
    """Host and port of http://HOST:PORT; without a host it is this machine alone. ConfigError,
    which names the setting.
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
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_local(request: Request) -> bool:
    """Whether the request names this machine: a page in a browser, whose own name was made to lead
    here, does not.
    """
    try:
        host = urlsplit(f"//{request.headers.get('host', 'localhost')}").hostname or ""
    except ValueError:
        return False
    return is_loopback(host)


async def serve_http(name: str, url: str, handler: Handler) -> tuple[asyncio.AbstractServer, str]:
    """Listen where the setting ``name`` says; returns the server and its URL, with its true port.

    ConfigError for a URL that can't be used, ListenError for an address that is in use.
    """
    host, port = address_of(name, url)
    under_way = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way
        if under_way >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        under_way += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await _answer(reader, writer, handler)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # a client that went away, or is none
        finally:
            under_way -= 1
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=MAX_HEAD_BYTES)
    except OSError as problem:
        raise ListenError(
            f"{url} ({name}) can't be listened on: {problem.strerror or problem}; choose another "
            "port"
        ) from None
    bound = server.sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return server, f"http://{shown}:{bound}"


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
) -> None:
    try:
        request = await _read(reader)
    except _BadRequestError as problem:
        await _write(writer, Answer(problem.status, f"{problem}\n".encode(), "text/plain"))
        return
    await _write(writer, await handler(request), send_body=request.method != "HEAD")


async def _read(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequestError(400, "this is not a request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise _BadRequestError(400, "a header line is not NAME: VALUE")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise _BadRequestError(411, "a body needs its Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise _BadRequestError(400, "Content-Length is not a number")
    if int(length) > MAX_BODY_BYTES:
        raise _BadRequestError(413, f"a body has up to {MAX_BODY_BYTES} bytes")
    body = await reader.readexactly(int(length))
    return Request(words[0], words[1].partition("?")[0], headers, body)


async def _write(writer: asyncio.StreamWriter, answer: Answer, *, send_body: bool = True) -> None:
    """HTTP/1.0's way for a body in pieces: its end is the connection's."""
    lines = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.content_type}",
        "Connection: close",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in answer.headers),
    ]
    if isinstance(answer.body, bytes):
        lines.append(f"Content-Length: {len(answer.body)}")
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
    if not send_body:
        pass
    elif isinstance(answer.body, bytes):
        writer.write(answer.body)
    else:
        async for piece in answer.body:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
    await writer.drain()
