"""One of the two brokers that probes send requests to: a separate connection, raw frames and
messages, and a few queries of the broker's state.
"""

from __future__ import annotations

import socket
import time
import uuid
from typing import Any

from kstore.errors import ErrorCode
from kstore.protocol.metadata.api_versions import ApiVersionsResponse
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import Message
from tests.conformance import wire
from tests.plain_messages import Ask

CORRELATION_ID = 7
_END_TXN = 26
# After this time no answer is expected, unless the other broker answered.
PATIENCE_S = 20.0


class Peer:
    """One of the two brokers; each case opens new connections."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.address = (host, port)
        self.versions: dict[int, tuple[int, int]] = {}
        self.noted: dict[str, Any] = {}
        """What it answered, by case; twins note it in one place."""
        self._sockets: dict[str, socket.socket] = {}
        frame = encode_request(Ask.ApiVersions(), 0, 1, "probe")
        _, answer = decode_response(self.exchange(frame), ApiVersionsResponse, 0)
        for row in answer.api_keys:
            self.versions[row.api_key] = (row.min_version, row.max_version)
        self.reset()

    def twin(self) -> Peer:
        """The same broker with separate connections for another thread."""
        twin = Peer(self.name, *self.address)
        twin.noted = self.noted
        return twin

    def connect(self, on: str = "") -> socket.socket:
        """The open connection of that name, or a new one."""
        if on not in self._sockets:
            self._sockets[on] = socket.create_connection(self.address, timeout=PATIENCE_S)
            self._sockets[on].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._sockets[on]

    def reset(self) -> None:
        """Closes all connections; the next request opens one."""
        while self._sockets:
            self._sockets.popitem()[1].close()

    def exchange(self, frame: bytes) -> bytes:
        """One raw request and its raw answer."""
        return wire.exchange(self.connect(), frame)

    def ask(self, message: Message, version: int, on: str = "") -> Message:
        self.send(message, version, on)
        return self.receive(message, version, on)

    def send(self, message: Message, version: int, on: str = "") -> None:
        """Send one request; its answer is received later."""
        self.connect(on).sendall(encode_request(message, version, CORRELATION_ID, "probe"))

    def receive(self, message: Message, version: int, on: str = "") -> Message:
        """The answer to the oldest unanswered request on the connection."""
        answer = wire.read_frame(self.connect(on))
        response = APIS[message.API_KEY].response
        correlation_id, found = decode_response(answer, response, version)
        if correlation_id != CORRELATION_ID:
            raise wire.WireError(f"answer to correlation id {correlation_id}, 7 was asked")
        return found

    def version_for(self, api_key: int, at_most: int = 32767) -> int:
        """The highest version that this broker and our declarations support."""
        return min(self.versions[api_key][1], APIS[api_key].max_version, at_most)

    def serves(self, topic: str) -> int:
        """The worst error code of the partitions 0 to 2 that the topic has; 0 when it is served."""
        rows = [{"partition_index": index, "timestamp": -1} for index in range(3)]
        request = Ask.ListOffsets(replica_id=-1, topics=[{"name": topic, "partitions": rows}])
        answer: Any = self.ask(request, 5)
        codes = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
        # Kafka returns errors first, whatever the request.
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return codes[0] or next((code for code in codes.values() if code not in (0, absent)), 0)

    def warm_up(self, deadline_s: float = 60) -> None:
        """Wait until the coordinators and the producer id allocator answer: Kafka starts them at
        the first request.
        """
        end = time.monotonic() + deadline_s
        requests: list[tuple[Message, int]] = [
            (Ask.InitProducerId(transactional_id=None, transaction_timeout_ms=1000), 1),
            (Ask.FindCoordinator(key="probe", key_type=0), 2),
            (Ask.Heartbeat(group_id="probe", generation_id=1, member_id="m"), 2),
        ]
        if _END_TXN in self.versions:
            requests += [
                (Ask.FindCoordinator(key="probe", key_type=1), 2),
                (Ask.InitProducerId(transactional_id="probe", transaction_timeout_ms=1000), 1),
            ]
        starting = {14, 15, 16}  # loading, not available, not coordinator
        for request, version in requests:
            while time.monotonic() < end:
                answer: Any = self.ask(request, version)
                if answer.error_code not in starting:
                    break
                time.sleep(0.1)

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic in this broker's metadata."""
        return len(self._metadata(topic).partitions)

    def topic_id(self, topic: str) -> uuid.UUID:
        """The id of a topic on this broker; the zero id if the topic does not exist."""
        return self._metadata(topic).topic_id

    def _metadata(self, topic: str) -> Any:
        request = Ask.Metadata(topics=[{"name": topic}], allow_auto_topic_creation=False)
        answer: Any = self.ask(request, 12)
        return answer.topics[0]
