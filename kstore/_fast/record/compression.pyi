"""Kafka's compression types by number: 1 gzip, 2 snappy, 3 lz4, 4 zstd. Decompression is always
bounded."""

from typing_extensions import Buffer

class CompressionError(ValueError):
    """The data cannot be decompressed, or holds more than the bound."""

def decompress(codec: int, data: Buffer, max_bytes: int) -> bytearray:
    """``data`` decompressed, at most ``max_bytes``; raises CompressionError. Snappy framed or
    raw."""

def compress(codec: int, data: Buffer, level: int = -1) -> bytes:
    """``data`` compressed as Kafka's clients do; ``level`` -1 is the codec's default."""
