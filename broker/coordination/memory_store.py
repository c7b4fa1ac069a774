"""The coordination store in memory, for tests and simulations. It ends with the process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from kstore.broker.coordination.store import WatchEvent
from kstore.broker.coordination.tree import (
    Backend,
    Node,
    SharedTree,
    TreeStore,
    WriteTransaction,
)

__all__ = ["MemoryStore"]

ROOT = Node(b"", 0, 0, 0, 0, 0)
CHANGES_KEPT = 100


class _Content:
    """The contents that transactions read and change."""

    def __init__(self) -> None:
        self.nodes = {"/": ROOT}
        self.counters: dict[str, int] = {}
        self.sessions: set[int] = set()
        self.changes: deque[tuple[int, tuple[WatchEvent, ...]]] = deque(maxlen=CHANGES_KEPT)


class _MemoryTransaction(WriteTransaction):
    """Changes the contents in place and keeps an undo list of the nodes."""

    def __init__(self, content: _Content) -> None:
        self._content = content
        self._nodes = content.nodes
        self._undo: list[tuple[str, Node | None]] = []
        self._counters_before = dict(content.counters)

    def get(self, path: str) -> Node | None:
        """See ReadTransaction."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """See ReadTransaction. Visits every node: trees in memory are small."""
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
        counters = self._content.counters
        counters[name] = counters.get(name, 0) + 1
        return counters[name]

    def sessions(self) -> list[int]:
        """See ReadTransaction."""
        return sorted(self._content.sessions)

    def last_zxid(self) -> int:
        """See ReadTransaction."""
        return self._content.counters.get("zxid", 0)

    def changes_after(self, zxid: int) -> list[WatchEvent] | None:
        """See ReadTransaction."""
        kept = self._content.changes
        if not kept or kept[0][0] > zxid + 1:
            return None
        return [event for at, events in kept if at > zxid for event in events]

    def add_session(self, session_id: int) -> None:
        """See WriteTransaction."""
        self._content.sessions.add(session_id)

    def remove_session(self, session_id: int) -> None:
        """See WriteTransaction."""
        self._content.sessions.discard(session_id)

    def note_changes(self, zxid: int, events: Sequence[WatchEvent]) -> None:
        """See WriteTransaction."""
        self._content.changes.append((zxid, tuple(events)))

    def roll_back(self) -> None:
        """Undo the puts and removes, in reverse order, and the counters."""
        self._content.counters = self._counters_before
        for path, node in reversed(self._undo):
            if node is None:
                del self._nodes[path]
            else:
                self._nodes[path] = node


class _MemoryBackend(Backend):
    def __init__(self) -> None:
        self._content = _Content()
        self._lock = RLock()

    @contextmanager
    def read(self) -> Iterator[_MemoryTransaction]:
        """See Backend."""
        with self._lock:
            yield _MemoryTransaction(self._content)

    @contextmanager
    def write(self) -> Iterator[_MemoryTransaction]:
        """See Backend."""
        with self._lock:
            txn = _MemoryTransaction(self._content)
            try:
                yield txn
            except BaseException:
                txn.roll_back()
                raise

    def close(self) -> None:
        """See Backend."""


class MemoryStore(TreeStore):
    """The first session on a new, empty tree. `new_session` opens further ones."""

    def __init__(self) -> None:
        super().__init__(SharedTree(_MemoryBackend()))
