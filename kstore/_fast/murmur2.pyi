"""Murmur2 with Kafka's seed: what decides on which partition a key lies."""

from typing_extensions import Buffer

def murmur2(data: Buffer) -> int:
    """The 32-bit hash, unsigned; equal to the Java client's."""

def jump_partition(data: Buffer, partitions: int) -> int:
    """The partition of a key by jump consistent hash: with more partitions, keys only move to the
    new ones.
    """
