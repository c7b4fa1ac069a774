"""Opens a connection to a broker: its addresses in turn, TLS, versions, and SASL.

nodes.py decides when and where to try again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstore.clients.io.connection import MAX_FRAME_BYTES, BrokerConnection
from kstore.errors import NetworkError, RequestTimedOutError

if TYPE_CHECKING:
    import ssl

    from kstore.net.sasl_login import Login

__all__ = ["new_socket", "open_connection"]


async def open_connection(
    host: str,
    port: int,
    settings: Mapping[str, Any],
    *,
    node_id: int = -1,
    setup_timeout_ms: float = 10_000,
    tls: ssl.SSLContext | None = None,
    login: Login | None = None,
) -> BrokerConnection:
    """Connect to a broker, trying the addresses of the host in turn (client.dns.lookup), agree on
    versions, and authenticate. `tls` and `login` are set if security.protocol needs them.

    Raises NetworkError, whose message says what to check, or the error of ApiVersions or SASL.
    """
    loop = asyncio.get_running_loop()
    address = f"{host}:{port}"
    limit = max(MAX_FRAME_BYTES, 2 * settings.get("fetch.max.bytes", 0))
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NetworkError(
            f"cannot find the address of {host!r} ({error.strerror or error}); check "
            "bootstrap.servers, and the broker's advertised.listeners"
        ) from error
    client = None if login is None else await login.client()  # may take a while
    problem: OSError | None = None
    for family, _, _, _, where in dict.fromkeys(found):
        try:
            sock = await _connect(family, where, settings, setup_timeout_ms / 1000)
        except OSError as error:  # asyncio's TimeoutError, too
            problem = error
            continue
        connection = BrokerConnection(
            address,
            node_id,
            settings["client.id"],
            request_timeout_ms=settings["request.timeout.ms"],
            max_frame_bytes=limit,
        )
        try:
            async with asyncio.timeout(setup_timeout_ms / 1000):
                await _begin(connection, sock, host, tls)
                await connection.agree()
                if login is not None and client is not None:
                    await connection.authenticate(client, login)
        except (TimeoutError, RequestTimedOutError):
            connection.close()
            raise NetworkError(
                f"{address} accepts connections but did not answer ApiVersions in "
                "time; is the broker stuck, or does the port belong to another program?"
            ) from None
        except BaseException:
            connection.close()
            raise
        return connection
    what = "it did not answer" if isinstance(problem, TimeoutError) else problem
    hint = "is a broker running there, and is that its port?"
    if node_id >= 0:
        hint = f"broker {node_id} advertises this address: check its advertised.listeners"
    raise NetworkError(f"cannot connect to {address}: {what}; {hint}") from problem


async def _begin(
    connection: BrokerConnection, sock: socket.socket, host: str, tls: ssl.SSLContext | None
) -> None:
    """Pass the connected socket to the protocol, after the TLS handshake if there is one."""
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(
            lambda: connection, sock=sock, ssl=tls, server_hostname=host if tls else None
        )
    except OSError as error:  # of TLS, too
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
        if _is_no_tls(error):
            raise NetworkError(
                f"{connection.address} does not speak TLS (it closed the connection, or answered "
                "in plain text): use a security.protocol of PLAINTEXT or SASL_PLAINTEXT there, or "
                "the port of a listener with TLS"
            ) from error
        raise NetworkError(
            f"no TLS connection to {connection.address}: {reason or 'it was closed'}; check that "
            "it is a listener with TLS, and ssl.truststore.location"
        ) from error


def _is_no_tls(error: OSError) -> bool:
    """Whether the handshake failed because the other side does not use TLS."""
    import ssl  # at this point it is imported already

    reason = str(getattr(error, "reason", "") or "")
    closed = isinstance(error, (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError))
    return closed or reason in {"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"}


def new_socket(family: int, settings: Mapping[str, Any]) -> socket.socket:
    """A TCP socket with the options of the client's settings, not connected yet."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, option in (
            ("send.buffer.bytes", socket.SO_SNDBUF),
            ("receive.buffer.bytes", socket.SO_RCVBUF),
        ):
            if settings[name] >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, settings[name])
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect(
    family: int, where: Any, settings: Mapping[str, Any], timeout_s: float
) -> socket.socket:
    sock = new_socket(family, settings)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock
