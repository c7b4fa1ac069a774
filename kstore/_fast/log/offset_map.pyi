"""From a record's key to the last offset it was written at, in bounded memory."""

from typing import Self

from typing_extensions import Buffer

class OffsetMap:
    """Keys as 128-bit SipHash-2-4 under ``seed`` (16 bytes); grows to at most ``max_bytes``."""

    capacity: int
    """Slots allocated now."""
    max_capacity: int
    """Slots that the bound allows; nine tenths of them are used."""
    count: int
    """Keys in the map."""
    latest_offset: int
    """The last offset that was indexed, -1 for none: later records are never dropped."""
    def __new__(cls, max_bytes: int, seed: bytes) -> Self: ...
    def put(self, key: Buffer, offset: int) -> bool:
        """Stores the last offset of ``key``; False where the map is full and the key is new."""
    def get(self, key: Buffer) -> int:
        """The offset stored last for ``key``, or -1."""
    def hash(self, key: Buffer) -> bytes:
        """The key's 16 hash bytes (for tests)."""
    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Memory of the slots."""
