"""Recompresses batches: for brokers, if a topic's compression.type is not the producer's."""

from typing_extensions import Buffer

def recompress(batches: Buffer, codec: int, level: int = -1) -> bytearray | None:
    """The batches, each in the codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd); None if all are in
    it already, and if one is invalid.
    """
