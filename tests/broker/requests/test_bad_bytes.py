"""Whatever comes in on a socket, the broker does with it what Kafka 4.3.1 does, and serves the
others. The verdicts in the table are a real Kafka's; the fuzz only asks that the broker lives.
"""

from __future__ import annotations

import random
import socket
import struct
from uuid import UUID

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.api import API_TABLE
from kstore.protocol.registry import APIS, encode_request
from tests.beside.programs import memory_mb
from tests.broker.harness.plane_harness import framed, frames
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, produce_request

CLOSED, OPEN = "closed", "open"
NULL_COUNT = b"\xff\xff\xff\xff\x0f"  # in Java's arithmetic less than null, which is null
HUGE_COUNT = b"\xff\xff\xff\xff\x07"


def header(key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 7, 1) + b"x" + (b"\0" if flexible else b"")


def api_versions(body: bytes, version: int = 3) -> bytes:
    return framed(header(18, version, flexible=version >= 3) + body)


def metadata(body: bytes, version: int = 12) -> bytes:
    return framed(header(3, version, flexible=version >= 9) + body)


def produce(body: bytes) -> bytes:
    return framed(header(0, 9, flexible=True) + b"\0\0\1\0\0\3\xe8" + body)


def fetch(body: bytes) -> bytes:
    fields = struct.pack(">iiiibii", -1, 10, 1, 1000, 0, 0, -1)
    return framed(header(1, 12, flexible=True) + fields + body)


GOOD = encode_request(
    Ask.ApiVersions(client_software_name="x", client_software_version="1"), 3, 7, "x"
)

VERDICTS: list[tuple[str, bytes, str, int]] = [
    ("size 0", framed(b""), CLOSED, 0),
    ("size -1", struct.pack(">i", -1), CLOSED, 0),
    ("smallest size", struct.pack(">i", -(2**31)), CLOSED, 0),
    ("largest size", struct.pack(">i", 2**31 - 1), CLOSED, 0),
    ("one more than allowed", struct.pack(">i", 104857601), CLOSED, 0),
    ("as much as allowed, begun", struct.pack(">i", 104857600) + b"abc", OPEN, 0),
    ("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n", CLOSED, 0),
    ("header cut", framed(b"\0\3\0"), CLOSED, 0),
    ("header without client id", framed(struct.pack(">hhi", 3, 12, 7)), CLOSED, 0),
    ("unknown key", framed(header(999, 0)), CLOSED, 0),
    ("negative key", framed(header(-1, 0)), CLOSED, 0),
    ("a broker's API", framed(header(4, 0) + b"\0" * 50), CLOSED, 0),
    ("newer version", metadata(b"\0" * 10, 99), CLOSED, 0),
    ("negative version", metadata(b"\0" * 10, -1), CLOSED, 0),
    ("older version", framed(header(0, 2) + b"\0" * 10), CLOSED, 0),
    ("ApiVersions of the future", api_versions(b"\2x\2x\0", 5), OPEN, 1),
    ("and with another header", framed(header(18, 99) + b"junk"), CLOSED, 0),
    ("ApiVersions of a negative version", api_versions(b"", -1), OPEN, 1),
    ("bytes behind a request", api_versions(b"behind", 0), OPEN, 1),
    ("body cut", api_versions(b"\2x"), CLOSED, 0),
    ("client software that is no name", api_versions(b"\2!\2x\0"), OPEN, 1),
    ("empty client software", api_versions(b"\1\1\0"), OPEN, 1),
    ("null client software", api_versions(b"\0\0\0"), CLOSED, 0),
    ("null client id", framed(struct.pack(">hhih", 18, 0, 7, -1)), OPEN, 1),
    ("client id of length -2", framed(struct.pack(">hhih", 18, 0, 7, -2)), OPEN, 1),
    ("count below null", metadata(NULL_COUNT + b"\0\0\0"), OPEN, 1),
    ("huge count", metadata(HUGE_COUNT + b"\0\0\0"), CLOSED, 0),
    ("count above what follows", metadata(b"\6\0\0\0"), CLOSED, 0),
    ("null count where it may not be", metadata(struct.pack(">i", -1), 0), CLOSED, 0),
    ("huge count, old version", metadata(struct.pack(">i", 2**31 - 1), 1), CLOSED, 0),
    ("null name", metadata(struct.pack(">ih", 1, -1), 1), CLOSED, 0),
    ("unknown tags", metadata(b"\1\0\0\1\5\3abc"), OPEN, 1),
    ("a tag twice", metadata(b"\1\0\0\2\5\1a\5\1b"), OPEN, 1),
    ("tag longer than the rest", metadata(b"\1\0\0\1\5" + HUGE_COUNT), CLOSED, 0),
    ("tag count below 0", metadata(b"\1\0\0" + NULL_COUNT), OPEN, 1),
    ("produce to null topics", produce(b"\0\0"), CLOSED, 0),
    ("produce to no topics", produce(b"\1\0"), OPEN, 1),
    ("produce to a null name", produce(b"\2\0\1\0\0"), CLOSED, 0),
    ("produce to null partitions", produce(b"\2\2t\0\0\0"), CLOSED, 0),
    ("fetch null topics", fetch(b"\0\1\1\0"), CLOSED, 0),
    ("fetch null forgotten topics", fetch(b"\1\0\1\0"), CLOSED, 0),
    ("fetch with a null rack", fetch(b"\1\1\0\0"), CLOSED, 0),
    ("fetch nothing", fetch(b"\1\1\1\0"), OPEN, 1),
    ("good, then bad", GOOD + GOOD + struct.pack(">i", -1), CLOSED, 2),
]


def connect(running: KstoreBroker) -> socket.socket:
    return socket.create_connection((running.host, running.port), timeout=20)


def counted(data: bytes) -> tuple[int, bytes]:
    """The number of whole answers at the start of these bytes, and the bytes after them."""
    found, rest = frames(data)
    return len(found), rest


def exactly(sock: socket.socket, size: int) -> bytes:
    """This number of bytes, or fewer at the end of the connection."""
    got = b""
    while len(got) < size and (piece := sock.recv(size - len(got))):
        got += piece
    return got


def is_served(running: KstoreBroker) -> None:
    with connect(running) as sock:
        sock.sendall(GOOD)
        assert len(exactly(sock, 8)) == 8


@pytest.mark.parametrize(("data", "end", "answers"), [v[1:] for v in VERDICTS],
                         ids=[v[0] for v in VERDICTS])  # fmt: skip
def test_each_kind_of_bytes_is_met_as_kafka_does(
    running: KstoreBroker, data: bytes, end: str, answers: int
) -> None:
    """The answer to a later request, or the end of the connection, shows that it was handled."""
    with connect(running) as sock:
        sock.sendall(data)
        got = b""
        if end == CLOSED:
            while piece := sock.recv(65536):
                got += piece
            assert counted(got) == (answers, b"")
        elif answers:
            sock.sendall(GOOD)
            while not got or counted(got)[0] < answers + 1:
                got += sock.recv(65536)
            assert counted(got) == (answers + 1, b"")
        else:
            is_served(running)
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)


def test_a_half_closed_client_gets_the_answers_to_what_it_sent(running: KstoreBroker) -> None:
    with connect(running) as sock:
        sock.sendall(GOOD * 3 + GOOD[:10])
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while piece := sock.recv(65536):
            got += piece
        assert counted(got) == (3, b"")


def test_many_pipelined_requests_are_answered_in_order(running: KstoreBroker) -> None:
    with connect(running) as sock:
        count = 2000
        sock.sendall(
            b"".join(encode_request(Ask.ApiVersions(), 0, number, "x") for number in range(count))
        )
        for number in range(count):
            size, correlation_id = struct.unpack(">ii", exactly(sock, 8))
            assert correlation_id == number
            assert len(exactly(sock, size - 4)) == size - 4


def test_declared_sizes_and_counts_take_no_memory(running: KstoreBroker) -> None:
    before = memory_mb(running.pid)
    held = []
    for _ in range(100):
        sock = connect(running)
        sock.sendall(struct.pack(">i", 104857600) + b"\0" * 1000)
        held.append(sock)
    is_served(running)
    assert memory_mb(running.pid) - before < 20, "100 requests of 100 MB were announced"
    for sock in held:
        sock.close()


@pytest.mark.slow
def test_an_idle_connection_takes_few_kilobytes(running: KstoreBroker) -> None:
    is_served(running)
    before = memory_mb(running.pid)
    held = [connect(running) for _ in range(800)]
    for sock in held:
        sock.sendall(GOOD)
    for sock in held:
        assert exactly(sock, 8)
    assert (memory_mb(running.pid) - before) * 1024 / len(held) < 16
    for sock in held:
        sock.close()


# ---- fuzz ----


def valid_frames() -> list[bytes]:
    """Requests of all APIs in their newest version, and some with content."""
    found = [
        encode_request(APIS[key].request(), row.max_version, 1, "fuzz")
        for key, row in API_TABLE.items()
        if key not in (0, 1) and not row.internal
    ]
    records = build_batch([b"x" * 100] * 5)
    produced = produce_request(
        "f", records, count=1, use_offset=True, row={"current_leader_epoch": 0}
    )
    wanted = fetch_part(max_bytes=1000)
    found += [
        encode_request(produced, 9, 1, "f"),
        encode_request(fetch_request("f", wanted, max_wait_ms=1), 12, 1, "f"),
        encode_request(fetch_request(UUID(int=5), wanted, max_wait_ms=500), 16, 1, "f"),
        encode_request(Ask.Metadata(topics=[{"name": "f"}]), 12, 1, "f"),
    ]
    return found


def bent(frame: bytes, dice: random.Random) -> bytes:
    """A frame with something wrong in it; its size is put right more often than not."""
    body = bytearray(frame[4:])
    for _ in range(dice.randint(1, 4)):
        kind = dice.randrange(5)
        at = dice.randrange(8, len(body)) if len(body) > 8 else len(body) - 1
        if kind == 0:
            body[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            body[at] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        elif kind == 2 and len(body) > 10:
            del body[at:]
        elif kind == 3:
            body[at:at] = dice.randbytes(dice.randint(1, 6))
        else:
            body[at : at + 5] = dice.choice([NULL_COUNT, HUGE_COUNT, b"\x7f\xff\xff\xff\xff"])
    size = len(body) if dice.random() < 0.9 else dice.randrange(-5, 2 * len(body))
    return struct.pack(">i", size) + bytes(body)


@pytest.mark.parametrize("seed", range(3))
def test_bent_requests_harm_nobody_else(running: KstoreBroker, seed: int) -> None:
    dice = random.Random(seed)
    good = valid_frames()
    is_served(running)
    before = memory_mb(running.pid)
    for _ in range(150):
        data = b"".join(
            bent(dice.choice(good), dice) if dice.random() < 0.7 else dice.choice(good)
            for _ in range(dice.randint(1, 6))
        )
        with connect(running) as sock:
            try:
                while data:
                    piece = dice.choice([1, 3, 50, 1000, 100_000])
                    sock.sendall(data[:piece])
                    data = data[piece:]
                if dice.random() < 0.3:
                    linger = struct.pack("ii", 1, 0)  # the connection ends with a reset
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                elif dice.random() < 0.3:
                    sock.setblocking(False)
                    sock.recv(1000)
            except OSError:
                continue  # the broker has closed it, or has nothing to say yet
    is_served(running)
    assert memory_mb(running.pid) - before < 40
