"""Kafka's compression types by number: 1 gzip, 2 snappy, 3 lz4, 4 zstd. Decompression is always
bounded."""

from typing_extensions import Buffer

class CompressionError(ValueError):
    """The data can't be decompressed, or exceeds the limit."""

def decompress(codec: int, data: Buffer, max_bytes: int) -> bytearray:
    """Decompressed ``data``, at most ``max_bytes``. Raises CompressionError. Snappy may be framed
    or raw.
    """

def compress(codec: int, data: Buffer, level: int = -1) -> bytes:
    """Compressed ``data``, as by Kafka's clients; ``level`` -1 is the codec's default."""
