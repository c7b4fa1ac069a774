"""Chooses connections: one per broker and lane, opened when first needed, with pauses after
failures; and chooses a broker for requests that any broker can answer.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.metadata import ClusterView
from kstore.clients.io.connection import BrokerConnection
from kstore.clients.io.opening import open_connection
from kstore.config.definition import ConfigError
from kstore.errors import KafkaError, NetworkError

if TYPE_CHECKING:
    import ssl

    from kstore.net.sasl_login import Login

__all__ = ["ANY", "Nodes", "parse_servers"]

ANY = -1
"""Instead of a node id: the least busy broker."""
CLOSE_S = 5.0
"""How long to wait for written data to be sent when a client is closed."""
_Address = tuple[str, int]


def parse_servers(servers: Sequence[str]) -> list[_Address]:
    """(host, port) of each "host:port" or "[v6]:port", by default port 9092. Raises ConfigError."""
    found = []
    for server in servers:
        host, colon, port = server.strip().rpartition(":")
        if not colon or server.endswith("]"):
            host, port = server.strip(), "9092"
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"bootstrap server {server!r} is not host:port", key="bootstrap.servers"
            )
        found.append((host.strip("[]"), int(port)))
    return found


class _Endpoint:
    """The address of a broker or bootstrap server, and the results of connecting to it."""

    __slots__ = ("address", "failures", "node_id", "not_before")

    def __init__(self, address: _Address, node_id: int) -> None:
        self.address = address
        self.node_id = node_id
        self.failures = 0
        self.not_before = 0.0


class Nodes:
    """The open connections of one client, and those that are being opened."""

    def __init__(self, settings: Mapping[str, Any], view: ClusterView) -> None:
        self._settings = settings
        self._view = view
        self._bootstrap = [_Endpoint(a, -1) for a in parse_servers(settings["bootstrap.servers"])]
        self._tls, self._login = _tls_context(settings), _login(settings)
        if not self._bootstrap:
            raise ValueError("bootstrap.servers is empty; it needs at least one host:port")
        self._known: dict[int, _Endpoint] = {}
        self._open: dict[tuple[_Address, str], BrokerConnection] = {}
        self._opening: dict[tuple[_Address, str], asyncio.Task[BrokerConnection]] = {}
        self._avoided: set[_Address] = set()
        self._wanted_since: float | None = None
        self._is_canonical = settings["client.dns.lookup"] == "use_all_dns_ips"
        self._idle_timer: asyncio.TimerHandle | None = None

    # ---- one broker ----

    async def connection(self, node_id: int, lane: str) -> BrokerConnection:
        """An open connection. Raises NetworkError if none is possible."""
        if node_id == ANY:
            return await self._any(lane)
        broker = self._view.brokers.get(node_id)
        if broker is None:
            raise NetworkError(f"broker {node_id} is not among the brokers that are alive")
        endpoint = self._known.get(node_id)
        if endpoint is None or endpoint.address != (broker.host, broker.port):
            endpoint = self._known[node_id] = _Endpoint((broker.host, broker.port), node_id)
        return self._opened(endpoint, lane) or await self._connect(endpoint, lane)

    def _opened(self, endpoint: _Endpoint, lane: str) -> BrokerConnection | None:
        connection = self._open.get((endpoint.address, lane))
        if connection is None or connection.is_lost:
            return None
        if endpoint.node_id >= 0:  # otherwise a bootstrap server's; it may be known now
            connection.node_id = endpoint.node_id
        return connection

    async def _connect(self, endpoint: _Endpoint, lane: str) -> BrokerConnection:
        """A new connection. Callers at the same time share it, and its failure."""
        key = (endpoint.address, lane)
        task = self._opening.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open_one(endpoint, lane))
            self._opening[key] = task
            task.add_done_callback(lambda done: self._opened_one(key, done))
        return await asyncio.shield(task)

    def _opened_one(self, key: tuple[_Address, str], task: asyncio.Task[BrokerConnection]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()  # the caller may have gone

    async def _open_one(self, endpoint: _Endpoint, lane: str) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(endpoint.not_before - loop.time())
        settings = self._settings
        setup_ms = pause_ms(
            endpoint.failures + 1,
            settings["socket.connection.setup.timeout.ms"],
            settings["socket.connection.setup.timeout.max.ms"],
            random.random(),
        )
        try:
            connection = await open_connection(
                *endpoint.address,
                settings,
                node_id=endpoint.node_id,
                setup_timeout_ms=setup_ms,
                tls=self._tls,
                login=self._login,
            )
        except KafkaError:
            endpoint.failures += 1
            pause = pause_ms(
                endpoint.failures,
                settings["reconnect.backoff.ms"],
                settings["reconnect.backoff.max.ms"],
                random.random(),
            )
            endpoint.not_before = loop.time() + pause / 1000
            raise
        endpoint.failures = 0
        self._open[endpoint.address, lane] = connection
        self._watch_idle()
        return connection

    # ---- any broker ----

    async def _any(self, lane: str) -> BrokerConnection:
        open_ones = [
            c
            for (address, its_lane), c in self._open.items()
            if its_lane == lane and not c.is_lost and address not in self._avoided
        ]
        if open_ones:
            return min(open_ones, key=lambda c: c.in_flight)
        if not self._is_canonical:
            self._bootstrap = await _canonical(self._bootstrap)
            self._is_canonical = True
        problems: list[str] = []
        last: KafkaError | None = None
        for endpoint in self._candidates():
            try:
                return self._opened(endpoint, lane) or await self._connect(endpoint, lane)
            except KafkaError as error:
                if not error.retriable:  # a client that was refused is refused elsewhere, too
                    raise
                last = error
                problems.append(str(error.args[0]))
        if last is None or len(problems) == 1:
            raise last or NetworkError("no broker is known")
        raise NetworkError("no broker can be reached: " + "; ".join(dict.fromkeys(problems)))

    def _candidates(self) -> Iterator[_Endpoint]:
        """Brokers in the metadata, those with recent failures last, then the bootstrap servers
        (metadata.recovery.strategy).
        """
        known = []
        for broker in self._view.brokers.values():
            endpoint = self._known.get(broker.node_id)
            if endpoint is None or endpoint.address != (broker.host, broker.port):
                endpoint = _Endpoint((broker.host, broker.port), broker.node_id)
                self._known[broker.node_id] = endpoint
            known.append(endpoint)
        if all(endpoint.address in self._avoided for endpoint in known):
            self._avoided.clear()
        random.shuffle(known)
        known.sort(key=lambda endpoint: (endpoint.address in self._avoided, endpoint.not_before))
        yield from known
        if not known or self._rebootstraps:
            first = list(self._bootstrap)
            random.shuffle(first)
            tried = {endpoint.address for endpoint in known}
            yield from (endpoint for endpoint in first if endpoint.address not in tried)

    def avoid(self, connection: BrokerConnection) -> None:
        """Until the next metadata response, ask another broker for requests that any broker can
        answer, if there is one.
        """
        found = [key for key, c in self._open.items() if c is connection]
        self._avoided.update(address for address, _ in found)

    def want_metadata(self) -> None:
        """Metadata is requested. If that has failed for long enough, start again from the bootstrap
        servers (KIP-1102).
        """
        now = asyncio.get_running_loop().time()
        if self._wanted_since is None:
            self._wanted_since = now
        limit_s = self._settings["metadata.recovery.rebootstrap.trigger.ms"] / 1000
        if self._rebootstraps and now - self._wanted_since > limit_s:
            self._wanted_since = now
            self.rebootstrap()

    def metadata_came(self) -> None:
        """Metadata was applied: close connections to bootstrap servers whose addresses are not
        brokers' addresses, and to brokers that were removed.
        """
        self._wanted_since = None
        self._avoided.clear()
        addresses = {(broker.host, broker.port) for broker in self._view.brokers.values()}
        for key, connection in list(self._open.items()):
            if connection.is_lost or (key[0] not in addresses and not connection.in_flight):
                self._drop(key)

    def rebootstrap(self) -> None:
        """Forget the brokers, and start again from the bootstrap servers."""
        self._view.brokers.clear()
        for key in list(self._open):
            self._drop(key)

    @property
    def _rebootstraps(self) -> bool:
        strategy: str = self._settings["metadata.recovery.strategy"]
        return strategy.lower() == "rebootstrap"

    @property
    def is_cut_off(self) -> bool:
        """Whether no connection is open and the last attempt to open one failed. Any thread may
        call it.
        """
        endpoints = [*self._bootstrap, *list(self._known.values())]
        has_failed = any(endpoint.failures for endpoint in endpoints)
        return has_failed and all(each.is_lost for each in list(self._open.values()))

    # ---- close ----

    def _drop(self, key: tuple[_Address, str]) -> None:
        self._open.pop(key).close()

    def _watch_idle(self) -> None:
        idle_s = self._settings["connections.max.idle.ms"] / 1000
        if self._idle_timer is None and idle_s >= 0:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(max(idle_s / 2, 0.05), self._close_idle, idle_s)

    def _close_idle(self, idle_s: float) -> None:
        self._idle_timer = None
        now = asyncio.get_running_loop().time()
        for key, connection in list(self._open.items()):
            idle = now - connection.last_used >= idle_s and not connection.in_flight
            if connection.is_lost or idle:
                self._drop(key)
        if self._open:
            self._watch_idle()

    async def close(self) -> None:
        """Close all connections, including those that are being opened."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        closing = list(self._open.values())
        for key in list(self._open):
            self._drop(key)
        await asyncio.gather(*(connection.wait_closed(CLOSE_S) for connection in closing))


def _tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The TLS context of security.protocol and the ssl.* settings. Raises ConfigError."""
    if settings["security.protocol"].upper() not in {"SSL", "SASL_SSL"}:
        return None
    from kstore.net.tls import client_context  # imported only if needed

    return client_context(settings)


def _login(settings: Mapping[str, Any]) -> Login | None:
    """The login of security.protocol and the sasl.* settings. Raises ConfigError."""
    if settings["security.protocol"].upper() not in {"SASL_PLAINTEXT", "SASL_SSL"}:
        return None
    from kstore.net.sasl_login import Login  # the same

    return Login(settings)


async def _canonical(endpoints: Sequence[_Endpoint]) -> list[_Endpoint]:
    """Bootstrap servers by the canonical names of all their addresses; a server without one is not
    changed.
    """
    loop = asyncio.get_running_loop()
    found: dict[_Address, None] = {}
    for endpoint in endpoints:
        host, port = endpoint.address
        try:
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for row in rows:
                where = row[4]
                name, _ = await loop.getnameinfo(where, socket.NI_NUMERICSERV)  # type: ignore[arg-type]
                found[name, port] = None
        except OSError:
            found[endpoint.address] = None
    return [_Endpoint(address, -1) for address in found]
