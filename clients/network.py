"""The clients' sockets: one blocking connection per broker, and the cluster as a client sees it.

It sends requests and waits for answers; what to ask and when to ask again is the clients' business.
A lost connection is a NetworkError, a late answer a RequestTimedOutError; both close it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kstore import __version__
from kstore.clients.core.metadata import Broker, ClusterView
from kstore.clients.core.versions import BrokerVersions
from kstore.errors import (
    ErrorCode,
    KafkaError,
    NetworkError,
    ProtocolError,
    RequestTimedOutError,
    raise_for,
)
from kstore.net.connection import ClientConnection, ResponseReceived
from kstore.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kstore.protocol.schema import Message

__all__ = ["BrokerConnection", "Cluster", "backoff", "parse_servers"]

M = TypeVar("M", bound=Message)
T = TypeVar("T")
READ_BYTES = 256 * 1024


def parse_servers(bootstrap_servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """(host, port) pairs of "host:port,[v6]:port"; a missing port is 9092."""
    if isinstance(bootstrap_servers, str):
        bootstrap_servers = bootstrap_servers.split(",")
    found = []
    for server in (text.strip() for text in bootstrap_servers):
        host, colon, port = server.rpartition(":")
        if not colon or server.endswith("]"):
            host, port = server, "9092"
        if not host or not port.isdecimal():
            raise ValueError(f"bootstrap server {server!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    return found


def backoff(deadline: float, first_ms: int, max_ms: int) -> Iterator[int]:
    """Attempt numbers from 0, with a growing pause before each but the first; ends at the deadline.

    `deadline` is a moment of time.monotonic(). There is always one attempt.
    """
    attempt = 0
    pause = first_ms / 1000
    while True:
        yield attempt
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 2, max_ms / 1000)
        attempt += 1


class BrokerConnection:
    """A blocking connection to one broker, with the versions it offers."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._answers: list[ResponseReceived] = []
        self._machine = ClientConnection(client_id)
        deadline = time.monotonic() + timeout_s
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise NetworkError(f"cannot connect to {self.address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.versions = BrokerVersions(self._api_versions(deadline))

    def close(self) -> None:
        """Close the socket; answers still under way are lost."""
        self._socket.close()

    @property
    def is_idle(self) -> bool:
        """Whether no answer is outstanding."""
        return self._machine.in_flight == 0

    def _api_versions(self, deadline: float) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name="kstore", client_software_version=__version__
        )
        response = ApiVersionsResponse()
        for version in (3, 0):
            self.send(request, version)
            response = self.receive(ApiVersionsResponse, deadline)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        raise_for(response.error_code)
        return response

    def send(self, request: Message, version: int, *, answered: bool = True) -> None:
        """Write a request; its answer is for `receive`, in the order of the requests."""
        self._machine.send(request, version, answered=answered)
        try:
            self._socket.sendall(self._machine.data_to_send())
        except OSError as error:
            self.close()
            raise NetworkError(f"lost the connection to {self.address}: {error}") from error

    def receive(self, response: type[M], deadline: float) -> M:
        """The next answer, which is of the class given; `deadline` as time.monotonic()."""
        try:
            while not self._answers:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise NetworkError(f"{self.address} closed the connection")
                self._answers += self._machine.receive_data(data)
        except TimeoutError as error:
            self.close()
            raise RequestTimedOutError(f"{self.address} did not answer in time") from error
        except OSError as error:
            self.close()
            raise NetworkError(f"lost the connection to {self.address}: {error}") from error
        except (ProtocolError, KafkaError):
            self.close()
            raise
        message = self._answers.pop(0).message
        if not isinstance(message, response):
            raise ProtocolError(f"expected {response.__name__}, got {type(message).__name__}")
        return message


class Cluster:
    """The brokers behind bootstrap servers: connections as needed, and metadata."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str,
        request_timeout_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self.view = ClusterView()
        self.request_timeout_s = request_timeout_ms / 1000
        self._bootstrap = parse_servers(bootstrap_servers)
        self._client_id = client_id
        self._backoff_ms = (retry_backoff_ms, retry_backoff_max_ms)
        self._connections: dict[tuple[str, int], BrokerConnection] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connect(self, host: str, port: int) -> BrokerConnection:
        connection = self._connections.get((host, port))
        if connection is None:
            connection = BrokerConnection(host, port, self._client_id, self.request_timeout_s)
            self._connections[host, port] = connection
        return connection

    def drop(self, connection: BrokerConnection) -> None:
        """Close a connection and forget it; the next request opens another."""
        connection.close()
        self._connections = {k: c for k, c in self._connections.items() if c is not connection}

    def broker(self, node_id: int) -> BrokerConnection:
        """The connection to a broker that metadata names."""
        broker: Broker = self.view.brokers[node_id]
        return self._connect(broker.host, broker.port)

    def any_broker(self) -> BrokerConnection:
        """A connection to whichever broker can be reached, known ones before bootstrap servers."""
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        known.sort(key=lambda address: address not in self._connections)
        error: KafkaError = NetworkError("there is no bootstrap server")
        for address in [*known, *self._bootstrap]:
            try:
                return self._connect(*address)
            except (NetworkError, RequestTimedOutError) as caught:
                error = caught
        raise error

    def ask(
        self,
        connection: BrokerConnection,
        request: Message,
        response: type[M],
        *,
        at_least: int = 0,
        at_most: int = 32767,
        extra_wait_s: float = 0,
    ) -> M:
        """One request and its answer. A failed connection is dropped, and the error raised."""
        version = connection.versions.choose(request.API_KEY, at_least=at_least, at_most=at_most)
        try:
            connection.send(request, version)
            deadline = time.monotonic() + self.request_timeout_s + extra_wait_s
            return connection.receive(response, deadline)
        except (NetworkError, RequestTimedOutError, ProtocolError):
            self.drop(connection)
            raise

    def refresh(self, topics: Sequence[str] | None, *, create: bool = False) -> None:
        """Fetch metadata for topics (None: all); `create` lets the broker create missing ones."""
        rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=create)
        connection = self.any_broker()
        self.view.update(self.ask(connection, request, MetadataResponse, at_least=4))

    def retrying(self, action: Callable[[], T], timeout_s: float, topics: Sequence[str] = ()) -> T:
        """The result of action, repeated while it raises retriable errors and time is left.

        Metadata of the topics, if any, is fetched anew where the error asks for that.
        """
        last: KafkaError | None = None
        for _ in backoff(time.monotonic() + timeout_s, *self._backoff_ms):
            try:
                if last is not None and last.refresh_metadata and topics:
                    self.refresh(topics)
                return action()
            except KafkaError as error:
                if not error.retriable:
                    raise
                last = error
        if last is None:
            raise RequestTimedOutError("no time was left for the request")
        raise last
