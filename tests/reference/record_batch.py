"""The record batch (magic 2) in plain Python, written from the format's description and for
reading, not for speed.

It shares nothing with ``kstore._fast``: other CRC, other codecs, no pointers. Tests compare the
two.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import crcmod.predefined
import lz4.frame
import snappy
import zstandard

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_COVERS_FROM = 21
SNAPPY_MAGIC = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)

_crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


class BadBatchError(Exception):
    """The bytes are not a good record batch."""


@dataclass(frozen=True)
class ReferenceRecord:
    """One record, its offset and timestamp as deltas."""

    key: bytes | None
    value: bytes | None
    timestamp_delta: int = 0
    offset_delta: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    attributes: int = 0


@dataclass(frozen=True)
class ReferenceBatch:
    """A batch's header fields and records."""

    records: tuple[ReferenceRecord, ...]
    base_offset: int = 0
    leader_epoch: int = -1
    attributes: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int | None = None
    records_count: int | None = None

    def timestamp(self, record: ReferenceRecord) -> int:
        """A record's timestamp, by the batch's timestamp type."""
        return (
            self.max_timestamp
            if self.attributes & 8
            else self.base_timestamp + record.timestamp_delta
        )


def uvarint(value: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag LEB128 of a signed number of any size."""
    return uvarint(value * 2 if value >= 0 else -value * 2 - 1)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: ReferenceRecord) -> bytes:
    """A record with its length."""
    body = bytes([record.attributes]) + varint(record.timestamp_delta) + varint(record.offset_delta)
    body += _nullable(record.key) + _nullable(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += varint(len(key)) + key + _nullable(value)
    return varint(len(body)) + body


def compress(codec: int, data: bytes, *, framed: bool = True) -> bytes:
    """By compression type; ``framed`` False is raw snappy."""
    if codec == 0:
        return data
    if codec == 1:
        return gzip.compress(data, mtime=0)
    if codec == 2:
        if not framed:
            return snappy.compress(data)
        blocks = [snappy.compress(data[at : at + 1000]) for at in range(0, len(data), 1000)]
        return SNAPPY_MAGIC + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == 3:
        return lz4.frame.compress(data, block_linked=False)
    return zstandard.ZstdCompressor().compress(data)


def decompress(codec: int, data: bytes) -> bytes:
    """By compression type; snappy framed or raw."""
    if codec == 0:
        return data
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        if data[:8] != SNAPPY_MAGIC[:8]:
            return snappy.uncompress(data)
        at, out = 16, b""
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            out += snappy.uncompress(data[at + 4 : at + 4 + size])
            at += 4 + size
        return out
    if codec == 3:
        return lz4.frame.decompress(data)
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def encode(batch: ReferenceBatch, *, payload: bytes | None = None) -> bytes:
    """The batch's bytes; ``payload`` replaces its (compressed) records."""
    codec = batch.attributes & 7
    if payload is None:
        payload = compress(codec, b"".join(encode_record(record) for record in batch.records))
    count = len(batch.records) if batch.records_count is None else batch.records_count
    last = count - 1 if batch.last_offset_delta is None else batch.last_offset_delta
    fields = [batch.attributes, last, batch.base_timestamp, batch.max_timestamp, batch.producer_id]
    fields += [batch.producer_epoch, batch.base_sequence, count]
    length = HEADER.size - 12 + len(payload)
    unsummed = HEADER.pack(batch.base_offset, length, batch.leader_epoch, 2, 0, *fields) + payload
    crc = _crc32c(unsummed[CRC_COVERS_FROM:])
    return HEADER.pack(batch.base_offset, length, batch.leader_epoch, 2, crc, *fields) + payload


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise BadBatchError(f"{size} bytes at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int) -> int:
        value = 0
        for index in range(10 if bits == 64 else 5):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >> bits:
                    break
                return value >> 1 if value & 1 == 0 else -(value >> 1) - 1
        raise BadBatchError(f"a varint at {self.at} is too long")

    def nullable(self) -> bytes | None:
        size = self.varint(32)
        return None if size == -1 else self.take(size)


def decode_record(reader: _Reader) -> ReferenceRecord:
    """The record at the reader's place, with its whole framing checked."""
    body = _Reader(reader.take(reader.varint(32)))
    attributes = body.take(1)[0]
    timestamp_delta, offset_delta = body.varint(64), body.varint(32)
    key, value = body.nullable(), body.nullable()
    headers = []
    count = body.varint(32)
    if count < 0:
        raise BadBatchError("a negative number of headers")
    for _ in range(count):
        headers.append((body.take(body.varint(32)), body.nullable()))
    if body.at != len(body.data):
        raise BadBatchError("bytes after a record's end")
    return ReferenceRecord(key, value, timestamp_delta, offset_delta, tuple(headers), attributes)


def decode(data: bytes) -> ReferenceBatch:
    """One whole batch at the start of ``data``; raises BadBatchError unless everything about it is
    right."""
    if len(data) < HEADER.size:
        raise BadBatchError("shorter than a header")
    offset, length, epoch, magic, crc, attributes, last, base, most, *rest = HEADER.unpack_from(
        data
    )
    if magic != 2 or length < HEADER.size - 12 or length + 12 > len(data):
        raise BadBatchError("magic or length")
    data = data[: length + 12]
    if crc != _crc32c(data[CRC_COVERS_FROM:]):
        raise BadBatchError("crc")
    producer_id, producer_epoch, sequence, count = rest
    if attributes & ~0x7F or attributes & 7 > 4 or count <= 0 or last != count - 1:
        raise BadBatchError("attributes or count")
    reader = _Reader(_decompress_or_fail(attributes & 7, data[HEADER.size :]))
    records = tuple(decode_record(reader) for _ in range(count))
    if reader.at != len(reader.data):
        raise BadBatchError("bytes after the last record")
    batch = ReferenceBatch(
        records, offset, epoch, attributes, base, most, producer_id, producer_epoch, sequence
    )
    _check(batch)
    return replace(batch, last_offset_delta=None)


def _decompress_or_fail(codec: int, payload: bytes) -> bytes:
    try:
        return decompress(codec, payload)
    except Exception as error:
        raise BadBatchError(f"cannot be decompressed: {error}") from error


def _check(batch: ReferenceBatch) -> None:
    if [record.offset_delta for record in batch.records] != list(range(len(batch.records))):
        raise BadBatchError("offset deltas")
    if max(batch.timestamp(record) for record in batch.records) != batch.max_timestamp:
        raise BadBatchError("max timestamp")
    has_no_sequence = batch.base_sequence == -1 and bool(batch.attributes & 0x30)
    if batch.producer_id == -1:
        if batch.attributes & 0x10:
            raise BadBatchError("transactional without a producer id")
    elif batch.producer_id < -1 or batch.producer_epoch < 0:
        raise BadBatchError("producer id or epoch")
    elif batch.base_sequence < 0 and not has_no_sequence:
        raise BadBatchError("sequence")


def make_batch(
    rows: Sequence[tuple[bytes | None, bytes | None, int, Sequence[tuple[bytes, bytes | None]]]],
    **fields: int,
) -> ReferenceBatch:
    """A good batch of (key, value, timestamp, headers) rows, with deltas and max timestamp worked
    out."""
    base = rows[0][2]
    records = tuple(
        ReferenceRecord(key, value, timestamp - base, index, tuple(headers))
        for index, (key, value, timestamp, headers) in enumerate(rows)
    )
    most = max(row[2] for row in rows)
    return ReferenceBatch(records, base_timestamp=base, max_timestamp=most, **fields)
