"""Well-formed requests with random contents, of every API and version: names and numbers at their
limits, names and ids that exist, and members, producers and topics from earlier responses. Each
gets a response or, where Kafka does so, the end of the connection. test_bad_bytes.py has malformed
bytes.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from kstore.broker.api import API_TABLE
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import KINDS, Message, Struct, field_type, parse_versions
from kstore.record import build_batch
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "delegation.token.secret.key": "secret"}
REQUESTS = 1000
STRINGS = [
    "t", "u", "g", "", "x", "x/y", "é", "\0", "*", "..", "1:2", "User:a", "a" * 249, "b" * 600,
    "c" * 32000, "__consumer_offsets", "__transaction_state", "__share_group_state",
    "cleanup.policy", "compact", "range", "uniform", "consumer", "-1",
]  # fmt: skip
NUMBERS = [0, 0, 1, 1, 2, 3, 5, -1, -1, -2, 100, 1000, 127, -128, 2**15 - 1, -(2**15), 2**31 - 1,
           -(2**31), 2**63 - 1, -(2**63)]  # fmt: skip
FLOATS = [0.0, 1.0, -1.0, 1e308, float("nan"), float("inf")]
BITS = {"Int8": 8, "Int16": 16, "UInt16": 17, "Int32": 32, "UInt32": 33, "Int64": 64}
NAME_OF = {kind: name for name, kind in KINDS.items()}
CLOSED = {"DescribeAcls", "CreateAcls", "DeleteAcls", "Metadata"}
"""As by Kafka: unknown kinds of ACLs, and Metadata by topic ids in versions without them."""
UNKNOWN = {
    "ListOffsets",
    "Fetch",
    "IncrementalAlterConfigs",
    "OffsetFetch",
    "StreamsGroupHeartbeat",
}
"""As Kafka, they answer some impossible values with UNKNOWN_SERVER_ERROR."""
SERVED = [
    key for key, row in API_TABLE.items()
    if not row.internal and APIS[key].name not in {"SaslHandshake", "SaslAuthenticate"}
]  # fmt: skip


class Values:
    """Random values for the fields of requests."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.seen: dict[str, list[Any]] = {"member_id": ["m"], "producer_id": [1],
                                           "topic_id": [UUID(int=0), UUID(int=1)]}  # fmt: skip

    def message(self, cls: type[Struct], version: int) -> Any:
        """A structure in which some fields have their defaults."""
        values = {}
        for name, spec in cls.SPECS.items():
            low, high = parse_versions(spec.versions)
            if not low <= version <= high or self.dice.random() < (0.6 if spec.tag >= 0 else 0.12):
                continue
            low, high = parse_versions(spec.nullable)
            if low <= version <= high and self.dice.random() < 0.2:
                values[name] = None
            else:
                values[name] = self.value(name, *field_type(cls, name), version)
        return cls(**values)

    def value(
        self, name: str, kind: int, element: int, cls: type[Struct] | None, version: int
    ) -> Any:
        """A value for one field; ``element`` is the kind of an array's elements."""
        dice = self.dice
        if name in self.seen and dice.random() < 0.5:
            return dice.choice(self.seen[name])
        if element:
            count = dice.choice([0, 1, 1, 1, 2, 3])
            return [self.value("", element, 0, cls, version) for _ in range(count)]
        if cls is not None:
            return self.message(cls, version)
        kind_name = NAME_OF[kind]
        if kind_name in BITS:
            limit = 1 << BITS[kind_name] - 1
            low = 0 if kind_name.startswith("U") else -limit
            return dice.choice([n for n in NUMBERS if low <= n < limit])
        makers: dict[str, Callable[[], Any]] = {
            "Bool": lambda: dice.random() < 0.5,
            "Float64": lambda: dice.choice(FLOATS),
            "Uuid": lambda: dice.choice(self.seen["topic_id"]),
            "String": lambda: dice.choice(STRINGS[:4] if dice.random() < 0.5 else STRINGS),
            "Bytes": lambda: dice.choice([b"", b"x", b"\0\1\0\0\0\1\0\1t\0\0\0\0", self.batch()]),
            "Records": self.batch,
        }
        return makers[kind_name]()

    def batch(self) -> bytes:
        """A batch, in half of the cases a malformed one."""
        batch = bytearray(build_batch([b"x" * 100] * self.dice.choice([1, 2, 50])))
        if self.dice.random() < 0.5:
            for _ in range(self.dice.randint(1, 3)):
                batch[self.dice.randrange(len(batch))] = self.dice.randrange(256)
        return bytes(batch)

    def learn(self, message: Struct) -> None:
        """Keep ids of members, producers and topics for later requests."""
        for name, value in fields(message):
            if value and name in self.seen:
                self.seen[name] = [*self.seen[name][-20:], value]


def fields(message: Struct) -> Iterator[tuple[str, Any]]:
    """The fields of a message and of its structures."""
    for name in message.SPECS:
        value = getattr(message, name)
        yield name, value
        for row in value if isinstance(value, list) else (value,):
            if isinstance(row, Struct):
                yield from fields(row)


def exactly(sock: socket.socket, size: int) -> bytes:
    """This number of bytes. Raises ConnectionError at the end of the connection."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
    return data


def connect(broker: KstoreBroker) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), timeout=60)


def ask(sock: socket.socket, request: Message, version: int) -> Message | None:
    """The response; None if the broker closes the connection."""
    try:
        sock.sendall(encode_request(request, version, 1, "random"))
        (size,) = struct.unpack(">i", exactly(sock, 4))
        frame = exactly(sock, size)
    except (ConnectionError, BrokenPipeError):
        return None
    return decode_response(frame, APIS[request.API_KEY].response, version)[1]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(2, 12))]
)
def test_every_request_gets_a_response_and_none_fails(running: KstoreBroker, seed: int) -> None:
    values = Values(random.Random(seed))
    sock = connect(running)
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in "tu"]
    ask(sock, Ask.CreateTopics(topics=topics, timeout_ms=10_000), 7)
    for number in range(REQUESTS):
        key = values.dice.choice(SERVED)
        api, row = APIS[key], API_TABLE[key]
        version = values.dice.randint(row.min_version, row.max_version)
        request = values.message(api.request, version)
        for name in {"timeout_ms", "max_wait_ms"} & request.SPECS.keys():
            setattr(request, name, values.dice.choice([0, 1, 50]))
        if api.name == "Produce":
            request.acks = values.dice.choice([1, -1])
        try:
            response = ask(sock, request, version)
        except ProtocolError:  # a value that this version of the request can't express
            continue
        case = f"request {number} of seed {seed}: {version} {request}"
        if response is None:
            assert api.name in CLOSED, case
            sock = connect(running)
            continue
        values.learn(response)
        if api.name not in UNKNOWN:
            codes = [code for name, code in fields(response) if name == "error_code"]
            assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes, case
    sock.close()
    assert "Traceback" not in (running.folder / running.OUTPUT).read_text()
