"""Valid and invalid record batches for the probes, built byte by byte without kstore."""

from __future__ import annotations

import struct
from typing import NamedTuple

import crcmod.predefined

from tests.reference.record_batch import varint

_crc32c = crcmod.predefined.mkCrcFun("crc-32c")
# The same in every run, because answers are recorded. The retention of the brokers keeps them.
TIMESTAMP_MS = 1_700_000_000_000


class Flaws(NamedTuple):
    """What a batch may have besides its values, including errors."""

    base_offset: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    attributes: int = 0
    magic: int = 2
    crc_xor: int = 0
    count_plus: int = 0
    last_delta_plus: int = 0
    first_delta: int = 0
    timestamp_ms: int = TIMESTAMP_MS
    key: bytes | None = b"key"
    cut_bytes: int = 0
    length_plus: int = 0


def batch(values: list[bytes | None], flaws: Flaws = Flaws()) -> bytes:  # noqa: B008 (immutable)
    """A version 2 batch; the timestamp of record n is n ms after that of the first."""
    records = bytearray()
    for index, value in enumerate(values):
        body = b"\x00" + varint(index) + varint(index + flaws.first_delta)
        for part in (flaws.key, value):
            body += varint(-1) if part is None else varint(len(part)) + part
        body += varint(0)
        records += varint(len(body)) + body
    tail = struct.pack(
        ">hiqqqhii",
        flaws.attributes,
        len(values) - 1 + flaws.last_delta_plus,
        flaws.timestamp_ms,
        flaws.timestamp_ms + max(0, len(values) - 1),
        flaws.producer_id,
        flaws.producer_epoch,
        flaws.base_sequence,
        len(values) + flaws.count_plus,
    ) + bytes(records)
    length = len(tail) + 9 + flaws.length_plus
    head = struct.pack(">qiib", flaws.base_offset, length, -1, flaws.magic)
    whole = head + struct.pack(">I", _crc32c(tail) ^ flaws.crc_xor) + tail
    return whole[: len(whole) - flaws.cut_bytes]
