"""The asyncio code around sockets: the loop, and listening on an address. It knows no protocol.

The clients use it, too.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["ListenError", "bind", "listen", "new_loop"]

PORT_ATTEMPTS = 20
"""How often to try to get a free port on all addresses of the host."""


class ListenError(OSError):
    """An address can't be listened on; the message says which, why, and what to do."""


def new_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop. The default loop policy is not changed."""
    import uvloop

    return uvloop.new_event_loop()


def bind(host: str, port: int, *, backlog: int | None) -> list[socket.socket]:
    """Sockets on every address of host ("" for all interfaces), on one port; 0 means a free one.
    Without a backlog they have the port but do not listen yet.

    Raises ListenError.
    """
    # As bytes: for a str Python loads half a megabyte of tables for international names.
    name = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(
            name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as problem:
        raise ListenError(
            f"{host!r} is not an address of this machine ({problem.strerror or problem}); "
            "use another host in listeners"
        ) from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    for attempt in range(PORT_ATTEMPTS):
        try:
            return _bind_all(addresses, port, backlog)
        except OSError as problem:
            last_attempt = port != 0 or attempt == PORT_ATTEMPTS - 1
            if last_attempt or problem.errno != errno.EADDRINUSE:
                raise ListenError(_sentence(host, port, problem)) from None
    raise AssertionError("the last attempt returns or raises")


def _bind_all(
    addresses: Sequence[tuple[socket.AddressFamily, Any]], port: int, backlog: int | None
) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses:
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # a family that this kernel does not support
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                sock.bind((address[0], port, *address[2:]))
            except OSError as problem:
                # ::1 is often listed but disabled; another address will do.
                if problem.errno == errno.EADDRNOTAVAIL and len(addresses) > 1:
                    sockets.pop().close()
                    continue
                raise
            if backlog is not None:
                sock.listen(backlog)
            port = sock.getsockname()[1]
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, "no address of it can be used")
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _sentence(host: str, port: int, problem: OSError) -> str:
    where = f"{host or 'every interface'} port {port}"
    if problem.errno == errno.EADDRINUSE:
        return (
            f"{where} is in use by another process; stop it, or choose another port with "
            f"--override listeners=PLAINTEXT://{host}:PORT"
        )
    if problem.errno in {errno.EACCES, errno.EPERM}:
        return f"this user may not listen on {where}; choose a port above 1023"
    return f"cannot listen on {where}: {problem.strerror or problem}; check listeners"


async def listen(
    loop: asyncio.AbstractEventLoop,
    factory: Callable[[], Any],
    sockets: list[socket.socket],
    backlog: int,
) -> list[asyncio.AbstractServer]:
    """Accept connections on sockets of `bind`; each connection gets a protocol from factory."""
    return [await loop.create_server(factory, sock=sock, backlog=backlog) for sock in sockets]
