"""The contents of a broker's segment files, by an independent walk over batch headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conformance.libraries.samples import CODECS


class StoredBatch(NamedTuple):
    """A batch header as it is in the file, and the bytes that its CRC covers."""

    base_offset: int
    position: int
    size_bytes: int
    crc: int
    attributes: int
    count: int
    covered: bytes


def stored_batches(path: Path) -> Iterator[StoredBatch]:
    """Every whole batch of a segment file; preallocated space after them is left out."""
    data = path.read_bytes()
    position = 0
    while position + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, position)
        if length <= 0:
            return
        crc, attributes = struct.unpack_from(">Ih", data, position + 17)
        (count,) = struct.unpack_from(">i", data, position + 57)
        end = position + 12 + length
        yield StoredBatch(
            base, position, 12 + length, crc, attributes, count, data[position + 21 : end]
        )
        position = end


def stored_codecs(log_dir: Path, topic: str) -> set[str]:
    """The names of the codecs of all batches of partition 0."""
    files = sorted((log_dir / f"{topic}-0").glob("*.log"))
    return {CODECS[batch.attributes & 7] for path in files for batch in stored_batches(path)}
