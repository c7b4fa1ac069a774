"""Kafka's compression types as a table, by name and by number. The codecs are in
``kstore._fast.record.compression``."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMPRESSIONS", "Compression", "compression_for"]


class Compression(NamedTuple):
    """A compression type: its number in a batch's attributes, its name in configs, and its
    levels."""

    id: int
    name: str
    min_level: int
    max_level: int
    default_level: int


COMPRESSIONS: tuple[Compression, ...] = (
    Compression(0, "none", 0, 0, 0),
    Compression(1, "gzip", 1, 9, 6),
    Compression(2, "snappy", 0, 0, 0),
    Compression(3, "lz4", 1, 17, 4),
    Compression(4, "zstd", 1, 22, 3),
)
"""By number; levels and names are those of Kafka's ``compression.*`` settings (KIP-780,
KIP-390).
"""

_BY_NAME = {row.name: row for row in COMPRESSIONS} | {"uncompressed": COMPRESSIONS[0]}


def compression_for(which: str | int) -> Compression:
    """The row of a name ("none", "uncompressed", "gzip", "snappy", "lz4", "zstd") or a number 0 to
    4.

    Raises ValueError for anything else.
    """
    if isinstance(which, int):
        if 0 <= which < len(COMPRESSIONS):
            return COMPRESSIONS[which]
    elif which in _BY_NAME:
        return _BY_NAME[which]
    names = ", ".join(row.name for row in COMPRESSIONS)
    raise ValueError(f"compression type {which!r} is unknown: use one of {names}")
