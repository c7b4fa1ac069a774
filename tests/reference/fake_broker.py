"""A broker for client tests: real sockets, answers written by the test, nothing stored. It answers
ApiVersions, Metadata and InitProducerId itself; a request without a script is an error in the test.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest
from tests.plain_messages import Answer
from tests.reference.connection import RequestReceived, ServerConnection

# What a handler may return instead of a response.
HANG_UP = object()
SILENCE = object()
Handler = Callable[[Any], Any]


class FakeBroker:
    """One broker with one topic "t"; `handlers` maps a request class to a function of the request.
    `requests` lists the requests in order, without ApiVersions and Metadata.
    """

    def __init__(self, *, partitions: int = 1, versions: dict[int, tuple[int, int]] | None = None):
        self.partitions = partitions
        self.versions = versions
        self.handlers: dict[type[Message], Handler] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            InitProducerIdRequest: self._init_producer_id,
        }
        self.requests: list[Any] = []
        self.connections = 0
        self.producer_ids = 0
        self.metadata_error = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(5)
            self._open.append(connection)
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        machine = ServerConnection()
        with connection:
            try:
                while data := connection.recv(65536):
                    for event in machine.receive_data(data):
                        if not self._handle(machine, event):
                            return
                    connection.sendall(machine.data_to_send())
            except OSError:
                return

    def _handle(self, machine: ServerConnection, event: RequestReceived) -> bool:
        message = event.message
        if not isinstance(message, (ApiVersionsRequest, MetadataRequest)):
            self.requests.append(message)
        answer = self.handlers[type(message)](message)
        if answer is HANG_UP:
            return False
        if answer is not SILENCE:
            machine.respond(event, answer)
        return True

    def _api_versions(self, _request: Any) -> Message:
        ranges = self.versions or {k: (a.min_version, a.max_version) for k, a in APIS.items()}
        rows = [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in ranges.items()
        ]
        return Answer.ApiVersions(api_keys=rows)

    def _metadata(self, request: MetadataRequest) -> Message:
        names = ["t"] if request.topics is None else [topic.name for topic in request.topics]
        rows = [{"partition_index": n, "leader_id": 7} for n in range(self.partitions)]
        known = {"error_code": self.metadata_error, "partitions": rows}
        topics = [{"name": name, **(known if name == "t" else {"error_code": 3})} for name in names]
        broker = {"node_id": 7, "host": "127.0.0.1", "port": self.port}
        return Answer.Metadata(brokers=[broker], controller_id=7, topics=topics)

    def _init_producer_id(self, _request: Any) -> Message:
        self.producer_ids += 1
        return Answer.InitProducerId(producer_id=1000 + self.producer_ids, producer_epoch=0)
