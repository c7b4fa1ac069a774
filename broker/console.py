"""The web console of a broker's HTTP listener. It runs in a separate process, which the first
request for a page starts. Requests are forwarded to this process. It ends with the broker.

Nothing of the console is loaded before the first request, and the broker's loop renders no page.
The process speaks Kafka's protocol to the cluster, so it has only the rights of the user who is
logged in.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import h11

from kstore.broker.http_server import Answer, Request
from kstore.config import ConfigError

if TYPE_CHECKING:
    from kstore.broker.compose.broker import Broker
    from kstore.config.listener import Listener

__all__ = ["Console"]

LOGGER = logging.getLogger("kstore.broker")
READ_ONLY = "kstore.console.read.only"
LISTENER = "kstore.console.listener.name"
CLIENT_CONFIG = "kstore.console.client.config"
REGISTRY = "kstore.console.schema.registry"
MODULE = "kstore.console.run"
PROXY_HEADER = "x-kstore-proxy"
READ_BYTES = 65536
ANSWER_S = 60.0
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
"""SASL mechanisms with a user and a password, best first."""
OWN_HEADERS = {
    "connection", "transfer-encoding", "content-length", "content-type", "cache-control",
    "keep-alive",
}  # fmt: skip
"""Headers that this broker's HTTP server writes itself."""


class ConsoleError(Exception):
    """The console cannot answer; the message says why."""


class Console:
    """The console's process and connections to it."""

    def __init__(self, broker: Broker, token: str | None) -> None:
        self._broker = broker
        self._token = token
        self._key = secrets.token_urlsafe(32)
        self._address = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()

    async def answer(self, request: Request) -> Answer:
        """The console's answer to a request; 503 if it does not start."""
        try:
            async with self._starting:
                if self._process is None or self._process.poll() is not None:
                    settings = self._settings()
                    await asyncio.to_thread(self._start, settings)
            async with asyncio.timeout(ANSWER_S):
                return await self._ask(request)
        except ConfigError as problem:
            return _refusal(503, str(problem))
        except ConsoleError as problem:
            LOGGER.error("%s", problem)
            return _refusal(503, str(problem))
        except (OSError, TimeoutError, h11.RemoteProtocolError) as problem:
            return _refusal(502, f"the console does not answer: {problem or 'it takes too long'}")

    # ---- the process ----

    def _start(self, settings: dict[str, Any]) -> None:
        """Start the process and wait until it listens, in a thread."""
        name = b"\0kstore-console-" + secrets.token_hex(16).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
            bound.bind(name)
            bound.listen()
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                pass_fds=[bound.fileno()],
            )  # fmt: skip
            settings["socket"] = bound.fileno()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(settings).encode() + b"\n")
                process.stdin.flush()
                word = process.stdout.readline()
            except BrokenPipeError:
                word = b""
        if word != b"ready\n":
            process.kill()
            process.wait()
            raise ConsoleError(
                "the console did not start; the broker's output says why. It needs "
                "pip install 'kstore[console]'"
            )
        self._address, self._process = name, process
        LOGGER.info("the console runs as process %d", process.pid)

    def _settings(self) -> dict[str, Any]:
        """The settings of the process: the brokers' listener, and how users log in."""
        config = self._broker.config
        listener = self._listener()
        ends = [
            end
            for each in self._broker.image.brokers.values()
            if (end := each.endpoint(listener.name)) is not None
        ]
        client: dict[str, Any] = {
            "bootstrap.servers": ",".join(
                f"[{end.host}]:{end.port}" if ":" in end.host else f"{end.host}:{end.port}"
                for end in ends
            ),
            "security.protocol": listener.protocol,
            "default.api.timeout.ms": 10_000,
            "request.timeout.ms": 5_000,
        }
        mechanisms: list[str] = []
        if listener.protocol.startswith("SASL_"):
            key = "sasl.enabled.mechanisms"
            enabled = self._broker.listener_settings.of(listener.name, [key])[key]
            mechanisms = [each for each in MECHANISMS if each in enabled]
            if not mechanisms:
                raise ConfigError(
                    f"the console logs in with a password or a token, and listener {listener.name} "
                    f"has only {', '.join(enabled)}: set {LISTENER} to another one",
                    key=LISTENER,
                )
        path = config[CLIENT_CONFIG]
        return {
            "client": client,
            "client_config": path,
            "mechanisms": mechanisms,
            "read_only": config[READ_ONLY],
            "registry": config[REGISTRY],
            "token": self._token,
            "proxy_key": self._key,
        }

    def _listener(self) -> Listener:
        """The listener that the console connects to: the named one, else one with users."""
        every = self._broker.config.advertised_listeners
        name = self._broker.config[LISTENER]
        if name:
            found = [each for each in every if each.name == name.upper()]
            if not found:
                known = ", ".join(each.name for each in every)
                raise ConfigError(
                    f"{LISTENER} is {name!r}; it must be one of {known}", key=LISTENER
                )
            return found[0]
        order = ("SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT", "SSL")
        return min(every, key=lambda each: order.index(each.protocol))

    # ---- one request ----

    def _connected(self) -> socket.socket:
        """Connect to the process. uvloop does not support abstract socket names, and connecting to
        a local socket does not wait.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.connect(self._address)
        except OSError:
            connection.close()
            raise
        return connection

    async def _ask(self, request: Request) -> Answer:
        reader, writer = await asyncio.open_unix_connection(sock=self._connected())
        try:
            http = h11.Connection(h11.CLIENT)
            head = h11.Request(
                method=request.method, target=request.path + request.query,
                headers=[*_forwarded(request), (PROXY_HEADER, self._key)],
            )  # fmt: skip
            events = (head, h11.Data(data=request.body), h11.EndOfMessage())
            # Send the headers first: the console can refuse a request by its headers alone and
            # close the connection.
            writer.write(b"".join(http.send(event) or b"" for event in events))
            await writer.drain()
            answer = await _next(http, reader)
            while isinstance(answer, h11.InformationalResponse):
                answer = await _next(http, reader)
            if not isinstance(answer, h11.Response):
                raise ConsoleError("the console ended the connection without an answer")
        except BaseException:
            writer.close()
            raise
        given = [(k.decode(), v.decode("latin-1")) for k, v in answer.headers]
        kind = dict(given).get("content-type", "text/plain")
        extra = tuple(row for row in given if row[0] not in OWN_HEADERS)
        pieces = _body(http, reader, writer)
        if kind.startswith("text/event-stream"):
            return Answer(answer.status_code, pieces, kind, extra)
        whole = b"".join([piece async for piece in pieces])
        return Answer(answer.status_code, whole, kind, extra)


def _forwarded(request: Request) -> list[tuple[str, str]]:
    """The headers to forward; the length of the body is computed again."""
    left_out = {"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade",
                "expect", "te", "trailer", "authorization", PROXY_HEADER}  # fmt: skip
    found = [(name, value) for name, value in request.headers.items() if name not in left_out]
    if "host" not in request.headers:
        found.append(("host", "localhost"))
    return [*found, ("connection", "close"), ("content-length", str(len(request.body)))]


async def _next(http: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(READ_BYTES))
    return event


async def _body(
    http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    try:
        while isinstance(event := await _next(http, reader), h11.Data):
            yield bytes(event.data)
    finally:
        writer.close()


def _refusal(status: int, sentence: str) -> Answer:
    return Answer(status, f"{sentence}\n".encode(), "text/plain; charset=utf-8")
