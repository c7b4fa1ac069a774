"""Probes for process supervisors: /livez, /readyz and /healthz. They need no token, because
Kubernetes cannot send one, and reveal only a status.

A stuck event loop accepts no connection. While it is stuck, a thread accepts connections instead
and answers 503.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import h11

from kstore.broker.http_server import Answer, Request

if TYPE_CHECKING:
    import asyncio

    from kstore.broker.runtime.loop_holds import LoopHolds
    from kstore.broker.runtime.membership.membership import Membership

__all__ = ["Probes", "StallResponder"]

MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 64
POLL_S = 0.25
LAST_S = 2.0
"""After the loop is no longer stuck, how long the thread still answers the connections that it has
accepted.
"""


class _Broker(Protocol):
    @property
    def membership(self) -> Membership:
        """Whether it has joined the cluster."""


class _Server(Protocol):
    @property
    def stopping(self) -> bool:
        """Whether it only answers requests in flight."""

    @property
    def broker(self) -> _Broker:
        """The broker."""


class Probes:
    """Answers probes on the loop."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    @property
    def status(self) -> str:
        """``starting``, ``ready`` or ``stopping``."""
        if self._server.stopping:
            return "stopping"
        return "ready" if self._server.broker.membership.joined else "starting"

    def answer(self, request: Request) -> Answer | None:
        """The answer to a probe; None for any other request."""
        if request.path == "/livez":
            status, is_good = "alive", True
        elif request.path in {"/readyz", "/healthz"}:
            status = self.status
            is_good = status == "ready"
        else:
            return None
        if request.method not in {"GET", "HEAD"}:
            body = {"error": f"{request.path} supports only GET"}
            return Answer(405, _json(body), headers=(("Allow", "GET, HEAD"),))
        return Answer(200 if is_good else 503, _json({"status": status}))


class StallResponder:
    """Answers probes in a thread while the loop is stuck, on the loop's listening sockets."""

    def __init__(self, holds: LoopHolds, server: asyncio.AbstractServer) -> None:
        self._holds = holds
        # Duplicated descriptors: the loop may close its own at any time.
        self._sockets = [
            socket.socket(fileno=os.dup(each.fileno()))
            for each in server.sockets  # type: ignore[attr-defined]
        ]
        self._closed = False
        self._threads: list[threading.Thread] = []
        holds.on_stuck = self.begin

    def close(self) -> None:
        """Stop answering."""
        self._closed = True
        self._holds.on_stuck = None
        for thread in self._threads:
            thread.join()
        for sock in self._sockets:
            sock.close()

    def begin(self, began_us: int) -> None:
        """Begin to answer: the loop has been blocked since ``began_us`` of the monotonic clock.
        Runs in the guard's thread.
        """
        thread = threading.Thread(
            target=self._serve, args=(began_us,), name="kstore-livez", daemon=True
        )
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()

    def _is_stuck(self, began_us: int) -> bool:
        return not self._closed and self._holds.began_us == began_us

    def _serve(self, began_us: int) -> None:
        waiting: dict[socket.socket, h11.Connection] = {}
        with selectors.DefaultSelector() as selector:
            for listening in self._sockets:
                selector.register(listening, selectors.EVENT_READ, listening)
            while self._is_stuck(began_us):
                _answer_ready(selector, waiting, began_us)
            for listening in self._sockets:
                selector.unregister(listening)
            end_s = time.monotonic() + LAST_S
            while waiting and not self._closed and time.monotonic() < end_s:
                _answer_ready(selector, waiting, began_us)
            for left in list(waiting):
                _drop(left, selector, waiting)


def _answer_ready(
    selector: selectors.BaseSelector,
    waiting: dict[socket.socket, h11.Connection],
    began_us: int,
) -> None:
    """Accept and answer waiting connections, for a moment."""
    for key, _ in selector.select(POLL_S):
        sock: socket.socket = key.data
        if sock not in waiting:
            _accept(sock, selector, waiting)
        elif _read(sock, waiting[sock], began_us):
            _drop(sock, selector, waiting)


def _accept(
    listening: socket.socket,
    selector: selectors.BaseSelector,
    waiting: dict[socket.socket, h11.Connection],
) -> None:
    try:
        sock, _ = listening.accept()
    except OSError:  # the loop has accepted it, or the client has disconnected
        return
    sock.setblocking(False)
    if len(waiting) >= MAX_CONNECTIONS:
        _drop(next(iter(waiting)), selector, waiting)
    waiting[sock] = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    selector.register(sock, selectors.EVENT_READ, sock)


def _drop(
    sock: socket.socket,
    selector: selectors.BaseSelector,
    waiting: dict[socket.socket, h11.Connection],
) -> None:
    del waiting[sock]
    selector.unregister(sock)
    sock.close()


def _read(sock: socket.socket, http: h11.Connection, began_us: int) -> bool:
    """Read the available bytes, and answer if the request is complete. Returns whether the
    connection is finished.
    """
    try:
        http.receive_data(sock.recv(MAX_HEAD_BYTES))
        if http.next_event() is h11.NEED_DATA:
            return False
        held_s = (time.monotonic_ns() // 1000 - began_us) // 1_000_000
        body = _json({"status": "stuck", "held_seconds": held_s})
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        for event in (
            h11.Response(status_code=503, headers=headers, reason="Service Unavailable"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            sock.sendall(http.send(event) or b"")
    except (OSError, h11.ProtocolError):
        return True  # the request is malformed, or its client has disconnected
    return True


def _json(row: Mapping[str, object]) -> bytes:
    return json.dumps(row).encode() + b"\n"
