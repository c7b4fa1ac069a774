"""The coordination store in memory: for tests and simulation. Nothing survives the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from kstore.broker.coordination.tree import Backend, Node, TreeStore, WriteTransaction

__all__ = ["MemoryStore"]

ROOT = Node(b"", 0, 0, 0, 0, 0)


class _MemoryTransaction(WriteTransaction):
    """Works in place on the dictionaries and keeps an undo list."""

    def __init__(self, nodes: dict[str, Node], counters: dict[str, int]) -> None:
        self._nodes = nodes
        self._counters = counters
        self._undo: list[tuple[str, Node | None]] = []

    def get(self, path: str) -> Node | None:
        """See ReadTransaction."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """See ReadTransaction. Looks at every node: trees in memory are small."""
        prefix = path if path == "/" else path + "/"
        skip = len(prefix)
        return sorted(
            other[skip:]
            for other in self._nodes
            if len(other) > skip and other.startswith(prefix) and "/" not in other[skip:]
        )

    def put(self, path: str, node: Node) -> None:
        """See WriteTransaction."""
        self._undo.append((path, self._nodes.get(path)))
        self._nodes[path] = node

    def remove(self, path: str) -> None:
        """See WriteTransaction."""
        self._undo.append((path, self._nodes.pop(path)))

    def owned(self, session_id: int) -> list[str]:
        """See WriteTransaction."""
        return [path for path, node in self._nodes.items() if node.ephemeral_owner == session_id]

    def next_counter(self, name: str) -> int:
        """See WriteTransaction."""
        self._counters[name] = self._counters.get(name, 0) + 1
        return self._counters[name]

    def roll_back(self) -> None:
        """Undo the puts and removes, last first. Counters may skip."""
        for path, node in reversed(self._undo):
            if node is None:
                del self._nodes[path]
            else:
                self._nodes[path] = node


class _MemoryBackend(Backend):
    def __init__(self) -> None:
        self._nodes = {"/": ROOT}
        self._counters: dict[str, int] = {}
        self._lock = RLock()

    @contextmanager
    def read(self) -> Iterator[_MemoryTransaction]:
        """See Backend."""
        with self._lock:
            yield _MemoryTransaction(self._nodes, self._counters)

    @contextmanager
    def write(self) -> Iterator[_MemoryTransaction]:
        """See Backend."""
        with self._lock:
            txn = _MemoryTransaction(self._nodes, self._counters)
            try:
                yield txn
            except BaseException:
                txn.roll_back()
                raise

    def close(self) -> None:
        """See Backend."""


class MemoryStore(TreeStore):
    """A new empty tree and its first session; further sessions by ``new_session``."""

    def __init__(self) -> None:
        super().__init__(_MemoryBackend())
