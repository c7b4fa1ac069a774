"""Accepts the connections of a listener with TLS. It limits the time and number of handshakes, and
reports failed handshakes to the operator.

A Connection handles everything after the handshake.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.security.unauthenticated import Unauthenticated

__all__ = ["TlsAcceptor"]

AT_ONCE = 50
"""How many connections are accepted before other work on the loop runs."""
PAUSE_S = 1.0
"""The pause after the system has no descriptor or memory left."""
GRACE_S = 5.0
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class TlsAcceptor:
    """The acceptor of one listener. It is closed like an asyncio server."""

    def __init__(
        self,
        node: Node,
        unauthenticated: Unauthenticated,
        context: Callable[[], ssl.SSLContext],
        factory: Callable[[], Any],
        sockets: list[socket.socket],
        failed: Callable[[], None],
        listener: str,
    ) -> None:
        """``context`` returns the current context, for each connection. ``failed`` is called when a
        handshake fails, unless the peer disconnected.
        """
        self._loop = node.loop
        self._report = node.report
        self._limit_s: float = node.config["kstore.authentication.timeout.ms"] / 1000
        self._unauthenticated = unauthenticated
        self._context = context
        self._factory = factory
        self._sockets = sockets
        self._failed = failed
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        for sock in sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def close(self) -> None:
        """Stop accepting, and end handshakes in progress."""
        self._closed = True
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in EXHAUSTED:
                    raise
                words = f"no connection can be accepted: {problem.strerror}"
                self._report(words, f"listener {self._listener}: {words}")
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE_S, self._go_on, listening)
                return
            sock.setblocking(False)
            with suppress(OSError):  # the peer may have disconnected
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._shake_hands(sock, f"{address[0]}:{address[1]}"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _go_on(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    async def _shake_hands(self, sock: socket.socket, peer: str) -> None:
        given_up: list[str] = []

        def give_up(reason: str) -> None:
            given_up.append(reason)
            with suppress(OSError):  # the peer has disconnected meanwhile
                sock.shutdown(socket.SHUT_RDWR)  # which ends the handshake

        self._unauthenticated.add(sock, give_up)
        try:
            await self._loop.connect_accepted_socket(
                self._factory, sock, ssl=self._context(),
                ssl_handshake_timeout=self._limit_s + GRACE_S,
            )  # fmt: skip
        except OSError as problem:
            found = getattr(problem, "reason", None) or str(problem) or "the peer is gone"
            reason = given_up[0] if given_up else f"the TLS handshake failed: {found}"
            if given_up or isinstance(problem, ssl.SSLError):
                self._failed()
            self._report(
                f"closing the connection from {peer}: {reason}",
                f"listener {self._listener}: {reason}",
            )
        finally:
            self._unauthenticated.remove(sock)
