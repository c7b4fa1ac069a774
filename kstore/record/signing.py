"""A record batch with another producer's identity: producer id, epoch, sequence and base offset."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kstore._fast.record.crc32c import checksum

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["signed"]

CRC_AT, ATTRIBUTES_AT, PRODUCER_AT = 17, 21, 43
_OFFSET = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")


def signed(
    batch: Buffer, offset: int, producer_id: int, sequence: int, producer_epoch: int = 0
) -> bytearray:
    """The batch with its first offset, its producer's id, and the first record's number."""
    made = bytearray(batch)
    _OFFSET.pack_into(made, 0, offset)
    _PRODUCER.pack_into(made, PRODUCER_AT, producer_id, producer_epoch, sequence)
    _UINT32.pack_into(made, CRC_AT, checksum(memoryview(made)[ATTRIBUTES_AT:]))
    return made
