"""A cache for keys that clients choose, with a limit in bytes. The least recently used entry is
dropped first.

Callers pass the sizes. `text_bytes` returns that of a str.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["BoundedCache", "text_bytes"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A mapping with a limit on the total size of its entries."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """The total size of the entries."""
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The value, which becomes the most recently used."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def items(self) -> list[tuple[K, V]]:
        """All keys with their values, least recently used first."""
        return [(key, value) for key, (value, _) in self._entries.items()]

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value; ``size`` is in bytes and includes the key. A value that is larger than the
        limit is not stored.
        """
        old = self._entries.pop(key, None)
        if old is not None:
            self.bytes -= old[1]
        if size > self.max_bytes:
            return
        self._entries[key] = (value, size)
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes -= freed

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self.bytes = 0


def text_bytes(text: str | None) -> int:
    """The largest size of a text in Python's memory."""
    if text is None:
        return 0
    return 64 + (len(text) if text.isascii() else 4 * len(text))
