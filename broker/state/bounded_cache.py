"""What is remembered under keys that clients choose, within a limit of bytes: who was silent
longest is forgotten first.

It counts what it is told, and knows nothing of Python's objects but `text_bytes`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["BoundedCache", "text_bytes"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A mapping whose entries together have at most so many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Of what is there, as it was counted."""
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The value, which now was used last."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def items(self) -> list[tuple[K, V]]:
        """All keys with their values, the one used longest ago first."""
        return [(key, value) for key, (value, _) in self._entries.items()]

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value that takes so many bytes, with its key. One that is larger than the
        limit is not remembered.
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
        """Forget all."""
        self._entries.clear()
        self.bytes = 0


def text_bytes(text: str | None) -> int:
    """What a text takes at most, as Python keeps it."""
    if text is None:
        return 0
    return 64 + (len(text) if text.isascii() else 4 * len(text))
