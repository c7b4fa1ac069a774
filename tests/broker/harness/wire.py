"""The raw client of tests: any request in any version, with kstore's own messages."""

from __future__ import annotations

import socket
from typing import Any, Self
from uuid import UUID

from kstore.broker.api import API_TABLE
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import Message
from tests.conformance import wire
from tests.plain_messages import Ask

CORRELATION_ID = 9


class Wire:
    """One connection to a broker, or to "host:port"."""

    def __init__(
        self, broker: Any, client_id: str = "test", *, host: str = "", timeout_s: float = 60.0
    ) -> None:
        """``host`` is the address that the broker sees."""
        to = broker if isinstance(broker, str) else f"{broker.host}:{broker.port}"
        name, _, port = to.rpartition(":")
        source = (host, 0) if host else None
        self.sock = socket.create_connection((name, int(port)), timeout_s, source)
        self.client_id = client_id
        self.got = b""
        """The last response, without its size."""

    def call(self, request: Message, version: int | None = None) -> Any:
        """The response. The default is the newest version that the broker serves."""
        if version is None:
            version = API_TABLE[request.API_KEY].max_version
        self.put(request, version)
        return self.take(request, version)

    def put(self, request: Message, version: int) -> None:
        """Send a request; its response is received later."""
        self.sock.sendall(encode_request(request, version, CORRELATION_ID, self.client_id))

    def take(self, request: Message, version: int) -> Any:
        """The response to the oldest request that has none."""
        response = APIS[request.API_KEY].response
        correlation_id, found = decode_response(self.answer(), response, version)
        assert correlation_id == CORRELATION_ID
        return found

    def answer(self) -> bytes:
        """One response without its size."""
        self.got = wire.read_frame(self.sock)
        return self.got

    def make_topic(self, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> UUID:
        """Create a topic (``retention_ms="1"`` is a config); returns its id."""
        rows = [{"name": key.replace("_", "."), "value": configs[key]} for key in configs]
        topic = {
            "name": name, "num_partitions": partitions, "replication_factor": replicas,
            "configs": rows,
        }  # fmt: skip
        [made] = self.call(Ask.CreateTopics(topics=[topic], timeout_ms=30_000)).topics
        assert made.error_code == 0, made
        return made.topic_id

    def configure(self, kind: int, name: str, *, dry: bool = False, **configs: object) -> Any:
        """Set configs of a resource, ``retention_ms="1"`` (None removes it)."""
        rows = [
            {"name": key.replace("_", "."), "config_operation": int(value is None),
             "value": None if value is None else str(value)}
            for key, value in configs.items()
        ]  # fmt: skip
        resource = {"resource_type": kind, "resource_name": name, "configs": rows}
        request = Ask.IncrementalAlterConfigs(resources=[resource], validate_only=dry)
        [answer] = self.call(request).responses
        return answer

    def set_group(self, group_id: str, **configs: object) -> int:
        """Set configs of a group, ``share_isolation_level="read_committed"``; the error code."""
        return self.configure(32, group_id, **configs).error_code

    def configs(self, kind: int, name: str, key: str) -> list[Any]:
        row = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        return self.call(Ask.DescribeConfigs(resources=[row])).results[0].configs

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask(broker: Any, request: Message, version: int | None = None) -> Any:
    """The response to one request on a separate connection."""
    with Wire(broker) as line:
        return line.call(request, version)
