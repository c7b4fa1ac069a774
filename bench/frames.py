"""Ready-made request frames for the load generator, built by hand from the protocol's pages:
nothing of kstore is in them. Versions are ones that Kafka 4.3.1 and kstore both serve.
"""

from __future__ import annotations

import struct
import time

import crcmod.predefined

from tests.conformance.wire import request_frame

__all__ = [
    "fetch",
    "fetched_batch",
    "latest_offset",
    "latest_offset_answer",
    "produce",
    "produce_error",
    "record_batch",
]

_crc32c = crcmod.predefined.mkCrcFun("crc-32c")
PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
# Of today: older records would be deleted by retention while they are measured.
TIMESTAMP_MS = int(time.time() * 1000)


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(value: int) -> bytes:
    return _unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def _compact(text: str) -> bytes:
    data = text.encode()
    return _unsigned(len(data) + 1) + data


def record_batch(values: list[bytes]) -> bytes:
    """A version 2 batch of records without keys and headers, not compressed, no producer id."""
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\x00" + _signed(0) + _signed(delta) + _signed(-1) + _signed(len(value)) + value
        body += _signed(0)
        records += _signed(len(body)) + body
    tail = struct.pack(
        ">hiqqqhii", 0, len(values) - 1, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, len(values)
    )
    tail += bytes(records)
    head = struct.pack(">qiib", 0, len(tail) + 9, -1, 2)
    return head + struct.pack(">I", _crc32c(tail)) + tail


def produce(topic: str, partition: int, batch: bytes, *, acks: int = -1) -> bytes:
    """Produce v9 of one batch to one partition."""
    body = _unsigned(0) + struct.pack(">hi", acks, 30_000) + _unsigned(2) + _compact(topic)
    body += _unsigned(2) + struct.pack(">i", partition) + _unsigned(len(batch) + 1) + batch
    return request_frame(PRODUCE, 9, body + b"\x00\x00\x00", flexible=True)


def produce_error(answer: bytes, topic: str) -> int:
    """The error code in the answer to `produce`."""
    place = 4 + 1 + 1 + len(_compact(topic)) + 1 + 4
    return int(struct.unpack_from(">h", answer, place)[0])


def fetch(topic: str, partition: int, offset: int, *, max_bytes: int) -> bytes:
    """Fetch v12 of one partition without a session, answered at once."""
    body = struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1) + _unsigned(2) + _compact(topic)
    body += _unsigned(2) + struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes)
    body += b"\x00\x00" + _unsigned(1) + _unsigned(1) + b"\x00"
    return request_frame(FETCH, 12, body, flexible=True)


def fetched_batch(answer: bytes, batch: bytes) -> bool:
    """Whether the answer to `fetch` carries these records (all that follows a batch's CRC)."""
    return batch[21:] in answer


def latest_offset(topic: str, partition: int) -> bytes:
    """ListOffsets v1 for the log end offset of one partition."""
    name = topic.encode()
    body = struct.pack(">iih", -1, 1, len(name)) + name + struct.pack(">iiq", 1, partition, -1)
    return request_frame(LIST_OFFSETS, 1, body)


def latest_offset_answer(answer: bytes, topic: str) -> tuple[int, int]:
    """(error code, offset) in the answer to `latest_offset`."""
    place = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    code, _, offset = struct.unpack_from(">hqq", answer, place)
    return int(code), int(offset)
