"""Murmur2: with Kafka's seed, it selects the partition of a key; in 64 bits, over the values of an
Arrow column.
"""

from typing_extensions import Buffer

def murmur2(data: Buffer) -> int:
    """The 32-bit hash, unsigned; equal to the Java client's."""

def string_hash(text: str) -> int:
    """Java's String.hashCode, signed: it selects the partition of a group in Kafka."""

def jump_partition(data: Buffer, partitions: int) -> int:
    """The partition of a key by jump consistent hash: with more partitions, keys only move to new
    ones.
    """

def hash64_column(
    offsets: Buffer, data: Buffer | None, validity: Buffer | None, first: int, count: int, seed: int
) -> bytearray:
    """The 64-bit hashes (uint64, native order) of ``count`` values of an Arrow binary or string
    column from row ``first`` on; ``offsets`` are int32. Null has a hash of its own.

    Raises ValueError for inconsistent buffers.
    """
