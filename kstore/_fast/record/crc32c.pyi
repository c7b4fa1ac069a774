"""CRC-32C, the checksum of Kafka's record batches, with CPU instructions if available."""

from typing_extensions import Buffer

IMPLEMENTATION: str
"""The implementation: ``sse4.2+pclmul``, ``armv8-crc`` or ``portable``."""

def checksum(data: Buffer, crc: int = 0) -> int:
    """The CRC-32C of ``data``; pass the CRC of the preceding bytes to continue it."""

def checksum_portable(data: Buffer, crc: int = 0) -> int:
    """As ``checksum``, always with the table fallback (for tests and comparison)."""

def seconds_for(data: Buffer, repeat: int) -> float:
    """Seconds for ``repeat`` checksums over ``data`` with no Python between them (for the
    benchmark)."""
