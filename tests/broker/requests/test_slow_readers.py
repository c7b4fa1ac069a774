"""Clients that read slowly, late or never, on real sockets: every byte arrives in order, memory
stays bounded, and a file that changes under an answer ends the connection, never its framing.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

import pytest

from kstore._fast.record.builder import build_batch
from kstore.protocol.logs.fetch import FetchResponse
from kstore.protocol.registry import decode_response, encode_request
from tests.beside.programs import memory_mb
from tests.beside.waiting import until
from tests.broker.harness.wire import Wire
from tests.broker.requests.test_extensions import Topic
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request

MB = 1 << 20
FETCH = 16
BATCH_BYTES = 100_000
STORED_BYTES = BATCH_BYTES + 72


def fill(topic: Topic, megabytes: int, index: int = 0) -> list[bytes]:
    """Produce this much; returns the batches as they are stored."""
    stored = []
    for offset in range(megabytes * MB // BATCH_BYTES):
        batch = bytearray(build_batch([offset.to_bytes(4, "big") * (BATCH_BYTES // 4)]))
        assert topic.produce(bytes(batch), index=index).error_code == 0
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">i", batch, 12, 0)  # the leader epoch
        assert len(batch) == STORED_BYTES
        stored.append(bytes(batch))
    return stored


def fetch_frame(topic: Topic, correlation_id: int, max_bytes: int, partitions: int = 1) -> bytes:
    parts = [fetch_part(0, index, max_bytes) for index in range(partitions)]
    request = fetch_request(topic.topic_id, *parts, min_bytes=0, session_epoch=-1)
    return encode_request(request, FETCH, correlation_id, "slow")


def read_answer(sock: socket.socket, pause: Callable[[], None] = lambda: None) -> bytes:
    """One answer, in small pieces."""
    data = b""
    size = 4
    while len(data) < size:
        piece = sock.recv(min(size - len(data), 200_000))
        if not piece:
            raise ConnectionError(f"closed after {len(data)} of {size} bytes")
        data += piece
        if size == 4 and len(data) >= 4:
            size = 4 + struct.unpack(">i", data[:4])[0]
        pause()
    return data[4:]


def records_of(answer: bytes, correlation_id: int) -> list[bytes]:
    found_id, response = decode_response(answer, FetchResponse, FETCH)
    assert found_id == correlation_id
    assert response.error_code == 0
    return [bytes(p.records or b"") for p in response.responses[0].partitions]


def small_window(broker: KstoreBroker) -> socket.socket:
    """A connection whose kernel buffers take little, so that the broker's socket is soon full."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.settimeout(20)
    sock.connect((broker.host, broker.port))
    return sock


def open_files(broker: KstoreBroker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


@pytest.mark.slow
def test_a_slow_reader_gets_every_byte_in_the_order_of_its_requests(broker: KstoreBroker) -> None:
    topic = Topic(Wire(broker), "slow")
    stored = [b"".join(fill(topic, 6, index)) for index in (0, 1)]
    before = open_files(broker)
    sock = small_window(broker)
    sizes = [6 * MB, 1000, 300_000, 3 * MB]
    sock.sendall(b"".join(fetch_frame(topic, n, size, 2) for n, size in enumerate(sizes)))
    for number, size in enumerate(sizes):
        found = records_of(read_answer(sock, lambda: time.sleep(0.0001)), number)
        for index, data in enumerate(found):
            assert data == stored[index][: len(data)]
            whole_batches = min(size, len(stored[index])) // STORED_BYTES
            assert len(data) == max(whole_batches, index == 0) * STORED_BYTES
    sock.close()
    until(lambda: open_files(broker) <= before)


def test_clients_that_never_read_take_bounded_memory(broker: KstoreBroker) -> None:
    topic = Topic(Wire(broker), "never")
    stored = b"".join(fill(topic, 8))
    before = memory_mb(broker.pid)
    frame = b"".join(fetch_frame(topic, n, 8 * MB) for n in range(50))
    deaf = [small_window(broker) for _ in range(20)]
    for sock in deaf:
        sock.sendall(frame)
    reader = Wire(broker)
    reader.sock.sendall(fetch_frame(topic, 7, 8 * MB))
    [data] = records_of(read_answer(reader.sock), 7)
    assert data == stored, "others are served"
    assert memory_mb(broker.pid) - before < 40, "20 clients with 50 answers of 8 MB each"
    [data] = records_of(read_answer(deaf[3]), 0)
    assert data == stored, "and one that wakes up too"
    for sock in deaf:
        sock.close()


def test_small_answers_that_nobody_reads_stop_the_requests(broker: KstoreBroker) -> None:
    topic = Topic(Wire(broker), "small")
    sock = small_window(broker)
    sock.setblocking(False)
    frame = encode_request(topic.request(build_batch([b"x"])), 13, 1, "x") * 1000
    sent = 0
    last_progress = time.monotonic()
    while time.monotonic() < last_progress + 1 and sent < 200 * MB:
        try:
            sent += sock.send(frame[sent % len(frame) :])
            last_progress = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 200 * MB, "the broker goes on reading from a client that never reads"
    assert memory_mb(broker.pid) < 100
    sock.close()


def test_segments_deleted_under_an_answer_are_still_sent(broker: KstoreBroker) -> None:
    wire = Wire(broker)
    topic = Topic(wire, "deleted")
    stored = b"".join(fill(topic, 6))
    sock = small_window(broker)
    sock.sendall(fetch_frame(topic, 1, 6 * MB))
    assert sock.recv(1, socket.MSG_PEEK)
    wire.call(Ask.DeleteTopics(topics=[{"name": "deleted"}]), 6)
    other = Topic(wire, "other")
    fill(other, 1)  # its file may get the number that the deleted one's descriptor had
    assert records_of(read_answer(sock), 1) == [stored]
    sock.close()


def test_a_file_cut_short_under_an_answer_ends_the_connection(broker: KstoreBroker) -> None:
    wire = Wire(broker)
    topic = Topic(wire, "cut")
    fill(topic, 6)
    sock = small_window(broker)
    sock.sendall(fetch_frame(topic, 1, 6 * MB))
    assert sock.recv(1, socket.MSG_PEEK)
    os.truncate(broker.log_dir / "cut-0" / f"{0:020}.log", 3 * MB)
    with pytest.raises(ConnectionError):
        read_answer(sock)
    other = Topic(wire, "other")
    stored = fill(other, 1)
    wire.sock.sendall(fetch_frame(other, 2, MB))
    assert records_of(read_answer(wire.sock), 2) == [b"".join(stored)]
    said = (broker.folder / "kstore.err").read_text()
    assert "became shorter" in said


def test_deleted_records_are_no_longer_fetched_and_nothing_breaks(broker: KstoreBroker) -> None:
    wire = Wire(broker)
    topic = Topic(wire, "before")
    stored = fill(topic, 6)
    sock = small_window(broker)
    sock.sendall(fetch_frame(topic, 1, 6 * MB))
    assert sock.recv(1, socket.MSG_PEEK)
    request = Ask.DeleteRecords(
        topics=[{"name": "before", "partitions": [{"partition_index": 0, "offset": 20}]}]
    )
    assert wire.call(request, 2).topics[0].partitions[0].low_watermark == 20
    assert records_of(read_answer(sock), 1) == [b"".join(stored)]
    sock.sendall(fetch_frame(topic, 2, 6 * MB))
    _, response = decode_response(read_answer(sock), FetchResponse, FETCH)
    assert response.responses[0].partitions[0].error_code == 1, "OFFSET_OUT_OF_RANGE"
    sock.close()


def test_a_connection_reset_in_the_middle_of_an_answer_leaves_nothing_open(
    broker: KstoreBroker,
) -> None:
    topic = Topic(Wire(broker), "reset")
    fill(topic, 6)
    before = open_files(broker)
    for _ in range(10):
        sock = small_window(broker)
        sock.sendall(fetch_frame(topic, 1, 6 * MB) * 3)
        assert sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    until(lambda: open_files(broker) <= before)


@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_was_answered_is_sent_before_a_bad_frame_ends_the_connection(
    broker: KstoreBroker, together: bool
) -> None:
    topic = Topic(Wire(broker), "last")
    stored = b"".join(fill(topic, 6))
    sock = small_window(broker)
    bad = struct.pack(">i", -5)
    sock.sendall(fetch_frame(topic, 1, 6 * MB) + (bad if together else b""))
    assert sock.recv(1, socket.MSG_PEEK)
    if not together:
        sock.sendall(bad)
    assert records_of(read_answer(sock), 1) == [stored]
    with pytest.raises(ConnectionError):
        read_answer(sock)
    sock.close()
