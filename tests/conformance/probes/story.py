"""How a probe's story is told to a broker, and how two brokers' answers are compared: requests
in, plain answers out, with what may differ between brokers replaced. The cases are in the other
modules.
"""

from __future__ import annotations

import hashlib
import re
import socket
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from kstore.errors import ErrorCode
from kstore.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.coordinator import FindCoordinatorRequest
from kstore.protocol.groups import HeartbeatRequest
from kstore.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kstore.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kstore.protocol.producer_ids import InitProducerIdRequest
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import ZERO_UUID, Message, Struct
from kstore.protocol.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.conformance import wire

__all__ = ["Case", "Difference", "Peer", "Story", "run_case"]

# A story yields requests and is sent the answers; None where the broker sent no answer.
Story = Generator[Message, Any, None]


class Case(NamedTuple):
    """A story that is told to both brokers, once per version of one API that both serve."""

    name: str
    api_key: int
    story: Callable[[Peer, int], Story]
    min_version: int = 0
    max_version: int = 32767
    every_version: bool = True  # else only the first and the last: it changes much and takes long


class Difference(NamedTuple):
    """Where two answers differ: the path to the field, and what each broker said."""

    case: str
    version: int
    path: str
    kafka: Any
    kstore: Any

    def __str__(self) -> str:
        where = f"{self.case} v{self.version}: {self.path}"
        return f"{where}: Kafka {self.kafka!r}, kstore {self.kstore!r}"


class Peer:
    """One of the two brokers, with a connection that is opened anew for each case."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.address = (host, port)
        self.versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket | None = None
        frame = encode_request(ApiVersionsRequest(), 0, 1, "probe")
        _, answer = decode_response(self.exchange(frame), ApiVersionsResponse, 0)
        for row in answer.api_keys:
            self.versions[row.api_key] = (row.min_version, row.max_version)

    def connect(self) -> socket.socket:
        """The open connection, or a new one."""
        if self._socket is None:
            self._socket = socket.create_connection(self.address, timeout=20)
        return self._socket

    def reset(self) -> None:
        """Closes the connection; the next request opens one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def exchange(self, frame: bytes) -> bytes:
        """One raw request and its raw answer."""
        return wire.exchange(self.connect(), frame)

    def ask(self, message: Message, version: int) -> Message:
        """One request and its answer."""
        answer = self.exchange(encode_request(message, version, 7, "probe"))
        correlation_id, found = decode_response(answer, APIS[message.API_KEY].response, version)
        if correlation_id != 7:
            raise wire.WireError(f"answer to correlation id {correlation_id}, 7 was asked")
        return found

    def version_for(self, api_key: int, at_most: int = 32767) -> int:
        """The highest version that this broker and our declarations have."""
        return min(self.versions[api_key][1], APIS[api_key].max_version, at_most)

    def serves(self, topic: str) -> int:
        """The worst error code of the partitions 0 to 2 that the topic has; 0 when it is served."""
        rows = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(3)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)]
        )
        answer: Any = self.ask(request, 5)
        codes = [row.error_code for row in answer.topics[0].partitions]
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return codes[0] or next((code for code in codes if code not in (0, absent)), 0)

    def warm_up(self, deadline_s: float = 60) -> None:
        """Waits until the group coordinator and the producer id allocator answer: Kafka starts
        both when they are first asked for.
        """
        end = time.monotonic() + deadline_s
        requests: list[tuple[Message, int]] = [
            (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1),
            (FindCoordinatorRequest(key="probe", key_type=0), 2),
            (HeartbeatRequest(group_id="probe", generation_id=1, member_id="m"), 2),
        ]
        for request, version in requests:
            starting = {14, 15, 16}  # loading, not available, not coordinator
            while time.monotonic() < end:
                answer: Any = self.ask(request, version)
                if answer.error_code not in starting:
                    break
                time.sleep(0.1)

    def partitions(self, topic: str) -> int:
        """How many partitions of a topic this broker tells of."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        answer: Any = self.ask(request, 12)
        return len(answer.topics[0].partitions)

    def topic_id(self, topic: str) -> uuid.UUID:
        """A topic's id on this broker; the zero id where there is no such topic."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        answer: Any = self.ask(request, 12)
        found: uuid.UUID = answer.topics[0].topic_id
        return found


def plain(value: Any, field: str = "") -> Any:
    """An answer as nested dicts and lists, with what may differ between brokers replaced."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name), name) for name in value.SPECS} | {
            "unknown_tags": sorted(value.unknown_tags or ())
        }
    if isinstance(value, list):
        return _by_name([plain(item, field) for item in value])
    return _REPLACED[field](value) if field in _REPLACED else _bytes_as_text(value)


def _by_name(rows: list[Any]) -> Any:
    """Rows that carry a name (or an API key) under it: their order is no part of an answer."""
    for label in ("name", "api_key", "topic", "group_id"):
        if rows and all(isinstance(row, dict) and row.get(label) is not None for row in rows):
            named: dict[str, Any] = {}
            for row in rows:
                key = str(row[label])
                while key in named:
                    key += " again"
                named[key] = row
            return named
    return rows


def _bytes_as_text(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:12]}" if data else "0 bytes"
    return value


def _unless(*plain_values: Any) -> Callable[[Any], Any]:
    return lambda value: value if value in plain_values else "<some>"


# The fields that brokers fill each in its own way.
_REPLACED: dict[str, Callable[[Any], Any]] = {
    "throttle_time_ms": lambda value: 0,
    "host": _unless(""),
    "port": _unless(-1, 0),
    "cluster_id": _unless(None),
    "topic_id": lambda value: value if value == ZERO_UUID else "<some>",
    "session_id": _unless(0),
    "producer_id": _unless(-1),
    "error_message": _unless(None),
    "batch_index_error_message": _unless(None),
    "member_id": lambda value: re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uuid>", value or ""),
    "leader": lambda value: re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uuid>", value or ""),
    "log_append_time_ms": _unless(-1),
    "client_host": lambda value: "<host>",
    "finalized_features_epoch": _unless(-1),
}


def differences(kafka: Any, kstore: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two plain answers differ."""
    if isinstance(kafka, dict) and isinstance(kstore, dict):
        for name in sorted(kafka.keys() | kstore.keys()):
            theirs, ours = kafka.get(name), kstore.get(name)
            yield from differences(theirs, ours, f"{path}.{name}".lstrip("."))
    elif isinstance(kafka, list) and isinstance(kstore, list) and len(kafka) == len(kstore):
        for index, pair in enumerate(zip(kafka, kstore, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif kafka != kstore:
        yield path, kafka, kstore


def settle(peer: Peer, message: Message, answer: Any) -> None:
    """Waits until what a request changed is seen by the data plane: Kafka answers before it is."""
    if isinstance(message, CreateTopicsRequest) and not message.validate_only:
        wanted, rows = 0, answer.topics
    elif isinstance(message, DeleteTopicsRequest):
        wanted, rows = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), answer.responses
    else:
        if isinstance(message, CreatePartitionsRequest) and not message.validate_only:
            _await_partitions(peer, message, answer)
        return
    for name in [row.name for row in rows if row.error_code == 0]:
        deadline = time.monotonic() + 5
        while peer.serves(name) != wanted and time.monotonic() < deadline:
            time.sleep(0.01)


def _await_partitions(peer: Peer, message: CreatePartitionsRequest, answer: Any) -> None:
    grown = {row.name for row in answer.results if row.error_code == 0}
    for topic in message.topics:
        deadline = time.monotonic() + 5
        while topic.name in grown and time.monotonic() < deadline:
            if peer.partitions(topic.name) >= topic.count:
                break
            time.sleep(0.01)


def tell(peer: Peer, case: Case, version: int) -> list[Any]:
    """The plain answers to a case's story; a closed connection is the answer "closed"."""
    answers: list[Any] = []
    peer.reset()
    story = case.story(peer, version)
    with suppress(StopIteration):
        message = next(story)
        while True:
            asked = (
                version if case.api_key == message.API_KEY else peer.version_for(message.API_KEY)
            )
            try:
                answer: Any = peer.ask(message, asked)
                answers.append({type(message).__name__: plain(answer)})
                settle(peer, message, answer)
            except (wire.WireError, ConnectionError) as error:
                peer.reset()
                answer = None
                answers.append({type(message).__name__: f"closed ({type(error).__name__})"})
            except TimeoutError:
                peer.reset()
                answer = None
                answers.append({type(message).__name__: "no answer"})
            message = story.send(answer)
    return answers


def run_case(case: Case, kafka: Peer, kstore: Peer) -> Iterator[Difference]:
    """Tells the story to both brokers at every version that they share."""
    if case.api_key not in kstore.versions:
        yield Difference(case.name, -1, "ApiVersions", kafka.versions[case.api_key], None)
        return
    ranges = [kafka.versions[case.api_key], kstore.versions[case.api_key]]
    ranges.append((APIS[case.api_key].min_version, APIS[case.api_key].max_version))
    first = max(case.min_version, *(low for low, _ in ranges))
    last = min(case.max_version, *(high for _, high in ranges))
    versions = range(first, last + 1) if case.every_version else sorted({first, last})
    for version in versions:
        told = [tell(peer, case, version) for peer in (kafka, kstore)]
        for path, theirs, ours in differences(*told):
            yield Difference(case.name, version, path, theirs, ours)
