"""Murmur2 with Kafka's seed: what decides on which partition a key lies."""

from typing_extensions import Buffer

def murmur2(data: Buffer) -> int:
    """The 32-bit hash, unsigned; equal to the Java client's."""
