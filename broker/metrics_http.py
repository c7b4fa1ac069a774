"""The broker's metrics over HTTP, for Prometheus: GET /metrics on a loopback address, where
kstore.metrics.listener names one. Nothing of it is loaded otherwise.

One answer a connection, no more than a request line and headers in; long answers are made in pieces
between which other work on the loop has its turn.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from kstore.config import ConfigError
from kstore.net.transport import ListenError

__all__ = ["serve_metrics"]

NAME = "kstore.metrics.listener"
MAX_REQUEST_BYTES = 16 * 1024
REQUEST_TIMEOUT_S = 10.0
LINES_PER_TURN = 200
TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def serve_metrics(
    url: str, lines: Callable[[], Iterator[str]]
) -> tuple[asyncio.AbstractServer, str]:
    """Answer GET /metrics with these lines; returns the server and where it listens.

    ConfigError for a URL that can't be used, ListenError for an address that is in use. An empty
    line from ``lines`` is left out.
    """
    host, port = _address(url)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await _answer(reader, writer, lines)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # a scraper that went away, or is none
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=MAX_REQUEST_BYTES)
    except OSError as problem:
        raise ListenError(
            f"{url} ({NAME}) can't be listened on: {problem.strerror or problem}; choose another "
            "port"
        ) from None
    bound = server.sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return server, f"http://{shown}:{bound}/metrics"


def _address(url: str) -> tuple[str, int]:
    """Host and port of http://LOOPBACK:PORT."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme != "http" or not host or port is None or parts.path.strip("/"):
        raise ConfigError(f"{NAME} is {url!r}: write it as http://127.0.0.1:PORT", key=NAME)
    if not _is_loopback(host):
        raise ConfigError(
            f"{NAME} is {url!r}: metrics are told without authentication, so only on a loopback "
            "address such as 127.0.0.1",
            key=NAME,
        )
    return host, port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lines: Callable[[], Iterator[str]]
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, path, *_ = [*head.split(b"\r\n", 1)[0].split(b" "), b"", b""]
    if path.partition(b"?")[0] != b"/metrics":
        _write(writer, "404 Not Found", b"metrics are at /metrics\n")
    elif method not in (b"GET", b"HEAD"):
        _write(writer, "405 Method Not Allowed", b"metrics are read with GET\n")
    else:
        body = await _text(lines())
        _write(writer, "200 OK", body, send_body=method == b"GET")
    await writer.drain()


def _write(
    writer: asyncio.StreamWriter, status: str, body: bytes, *, send_body: bool = True
) -> None:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode() + (body if send_body else b""))


async def _text(lines: Iterator[str]) -> bytes:
    text = bytearray()
    for count, line in enumerate(lines, 1):
        if line:
            text += line.encode() + b"\n"
        if count % LINES_PER_TURN == 0:
            await asyncio.sleep(0)
    return bytes(text)
