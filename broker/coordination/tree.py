"""ZooKeeper's rules for a tree of versioned nodes, on any transactional map from path to node.

memory_store and lmdb_store share it: operations, versions, sequential names, sessions with their
ephemeral nodes, and watches. It stores nothing itself; a backend provides transactions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import Lock, RLock
from typing import NamedTuple

from kstore.broker.coordination.store import (
    ANY_VERSION,
    BadPathError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    Set,
    Stat,
    Store,
    StoreClosedError,
    StoreError,
    Watch,
    WatchCallback,
    WatchEvent,
    validate_path,
)

__all__ = ["Backend", "Node", "ReadTransaction", "SharedTree", "TreeStore", "WriteTransaction"]


class Node(NamedTuple):
    """A stored node. ``created_children`` numbers its sequential children and never decreases."""

    data: bytes
    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    created_children: int


class ReadTransaction(ABC):
    """One consistent view of the map."""

    @abstractmethod
    def get(self, path: str) -> Node | None:
        """The node, or None."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Sorted names of the nodes one level below ``path``."""

    @abstractmethod
    def sessions(self) -> list[int]:
        """The ids of the sessions that are not over."""

    @abstractmethod
    def last_zxid(self) -> int:
        """The id of the last transaction. 0 if there was none."""

    @abstractmethod
    def changes_after(self, zxid: int) -> list[WatchEvent] | None:
        """The changes of the transactions after ``zxid``, in order. None if the oldest of them are
        no longer stored.
        """


class WriteTransaction(ReadTransaction):
    """The view of the only writer, which sees its own writes. If it ends with an exception, none of
    them are committed.
    """

    @abstractmethod
    def put(self, path: str, node: Node) -> None:
        """Insert or replace."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove an existing node."""

    @abstractmethod
    def owned(self, session_id: int) -> list[str]:
        """Paths of the session's ephemeral nodes."""

    @abstractmethod
    def next_counter(self, name: str) -> int:
        """Increment a named durable counter and return it; the first result is 1."""

    @abstractmethod
    def add_session(self, session_id: int) -> None:
        """Note that a session has begun."""

    @abstractmethod
    def remove_session(self, session_id: int) -> None:
        """Note that a session is over."""

    @abstractmethod
    def note_changes(self, zxid: int, events: Sequence[WatchEvent]) -> None:
        """Store the transaction's changes for `changes_after`, and delete very old ones."""


class Backend(ABC):
    """The transactional map, shared by all sessions of this process."""

    @abstractmethod
    def read(self) -> AbstractContextManager[ReadTransaction]:
        """Begin a read transaction."""

    @abstractmethod
    def write(self) -> AbstractContextManager[WriteTransaction]:
        """Begin a write transaction; it is durable when the context ends without an exception."""

    @abstractmethod
    def close(self) -> None:
        """Release the backend's resources; the last session calls it."""

    def session_begins(self, session_id: int) -> None:  # noqa: B027 (optional)
        """Show other processes, before the session is stored, that its process is alive."""

    def session_ended(self, session_id: int) -> None:  # noqa: B027
        """Undo what `session_begins` did."""

    def has_ended(self, session_id: int) -> bool:
        """Whether the session's process has certainly ended."""
        return False


_MISSED = WatchEvent("changed", "")
"""Stands for changes that are no longer stored: every watch is notified."""


class _TreeWatch(Watch):
    def __init__(self, tree: SharedTree, path: str, callback: WatchCallback) -> None:
        self._tree = tree
        self._prefix = path if path == "/" else path + "/"
        self.path = path
        self.callback = callback
        self.active = True

    def covers(self, path: str) -> bool:
        """Whether this watch covers a change of ``path``."""
        return path == self.path or path.startswith(self._prefix)

    def cancel(self) -> None:
        """Stop; see the contract."""
        self.active = False
        self._tree.forget(self)


class SharedTree:
    """The backend, and what the sessions of one process share: the write lock, the watches, the
    undelivered events.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.own_sessions: set[int] = set()
        self._open = 0
        self._lost_sessions: set[int] = set()
        self._write_lock = RLock()
        # This is not the write lock, whose holder may have to wait for another process's
        # transaction.
        self._catching_up = Lock()
        self._watches: list[_TreeWatch] = []
        self._pending: deque[WatchEvent] = deque()
        self._delivering = Lock()
        with backend.read() as txn:
            self._seen_zxid = txn.last_zxid()

    def commit(self, session_id: int, ops: Sequence[Op]) -> list[str | int | None]:
        """Run the operations as one transaction, then notify the watches."""
        with self._write_lock, self.backend.write() as txn:
            if session_id not in txn.sessions():
                self._lost_sessions.add(session_id)
                self.check_not_lost(session_id)
            events: list[WatchEvent] = []
            zxid = txn.next_counter("zxid")
            results = _apply_all(txn, session_id, zxid, ops, events)
            txn.note_changes(zxid, events)
        self.catch_up()
        return results

    def open_session(self) -> int:
        """A new session's id."""
        with self._write_lock:
            with self.backend.write() as txn:
                session_id = txn.next_counter("session")
            self.backend.session_begins(session_id)
            with self.backend.write() as txn:
                txn.add_session(session_id)
            self.own_sessions.add(session_id)
            self._open += 1
            return session_id

    def expire(self, session_id: int) -> None:
        """End a session of this or another process, and delete its ephemeral nodes."""
        with self._write_lock, self.backend.write() as txn:
            owned = txn.owned(session_id)
            if session_id not in txn.sessions() and not owned:
                return
            for path in owned:
                txn.remove(path)
            txn.remove_session(session_id)
            zxid = txn.next_counter("zxid")
            txn.note_changes(zxid, [WatchEvent("deleted", path) for path in owned])
        self.catch_up()

    def close_session(self, session_id: int) -> None:
        """End a session of this process; the last one closes the backend."""
        with self._write_lock:
            self.own_sessions.discard(session_id)
        self.expire(session_id)
        self.backend.session_ended(session_id)
        with self._write_lock:
            self._open -= 1
            last = self._open == 0
        if last:
            self.backend.close()

    def note_lost(self, session_ids: set[int]) -> None:
        """Notify the watches of sessions of this process that other processes have ended, because
        this process was stalled.
        """
        new = session_ids - self._lost_sessions
        if new:
            self._lost_sessions |= new
            self._pending.append(_MISSED)
            self._deliver()

    def is_lost(self, session_id: int) -> bool:
        """Whether other processes have ended the session, as far as is known."""
        return session_id in self._lost_sessions

    def check_not_lost(self, session_id: int) -> None:
        """Raise StoreClosedError if other processes have ended the session."""
        if self.is_lost(session_id):
            raise StoreClosedError(
                f"session {session_id} of the store has expired: its process did not renew it in "
                "time; open a new one"
            )

    def catch_up(self) -> None:
        """Notify the watches of changes since the last call, by any process."""
        with self._catching_up:
            with self.backend.read() as txn:
                last = txn.last_zxid()
                events = txn.changes_after(self._seen_zxid) if last > self._seen_zxid else []
            self._seen_zxid = last
            self._pending.extend([_MISSED] if events is None else events)
        self._deliver()

    def add(self, path: str, callback: WatchCallback) -> _TreeWatch:
        """Register a watch."""
        watch = _TreeWatch(self, path, callback)
        with self._catching_up:
            self._watches = [*self._watches, watch]
        return watch

    def forget(self, watch: _TreeWatch) -> None:
        """Unregister a watch, if it is registered."""
        with self._catching_up:
            self._watches = [other for other in self._watches if other is not watch]

    def _deliver(self) -> None:
        # One thread delivers at a time, so events keep the order of their transactions. Other
        # threads, and callbacks that write, leave their events to this thread. The loop checks
        # again, because an event may arrive while it stops.
        while self._pending and self._delivering.acquire(blocking=False):
            try:
                while self._pending:
                    event = self._pending.popleft()
                    for watch in self._watches:
                        if watch.active and event is _MISSED:
                            watch.callback(WatchEvent("changed", watch.path))
                        elif watch.active and watch.covers(event.path):
                            watch.callback(event)
            finally:
                self._delivering.release()


class TreeStore(Store):
    """A session on a tree in a Backend. See Store for the contract."""

    def __init__(self, tree: SharedTree) -> None:
        self._tree = tree
        self._session_id = self._tree.open_session()
        self._own_watches: list[Watch] = []
        self._closed = False

    @property
    def session_id(self) -> int:
        """See Store."""
        return self._session_id

    @property
    def over(self) -> bool:
        """See Store."""
        return self._closed or self._tree.is_lost(self._session_id)

    def has_expired(self) -> bool:
        """See Store."""
        if self.over:
            return True
        with self._tree.backend.read() as txn:
            return self._session_id not in txn.sessions()

    def get(self, path: str) -> tuple[bytes, int]:
        """See Store."""
        node = self._node(path)
        if node is None:
            raise NoNodeError(f"there is no node {path}")
        return node.data, node.version

    def stat(self, path: str) -> Stat | None:
        """See Store."""
        node = self._node(path)
        return None if node is None else _stat(node)

    def read_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """See Store."""
        self._check_open()
        with self._tree.backend.read() as txn:
            nodes = [txn.get(validate_path(path)) for path in paths]
        return [None if node is None else (node.data, _stat(node)) for node in nodes]

    def owner_has_ended(self, path: str) -> bool:
        """See Store."""
        node = self._node(path)
        owner = 0 if node is None else node.ephemeral_owner
        return owner != 0 and self._tree.backend.has_ended(owner)

    def children(self, path: str) -> list[str]:
        """See Store."""
        self._check_open()
        with self._tree.backend.read() as txn:
            if txn.get(validate_path(path)) is None:
                raise NoNodeError(f"there is no node {path}")
            return txn.children(path)

    def multi(self, ops: Sequence[Op]) -> list[str | int | None]:
        """See Store."""
        self._check_open()
        return self._tree.commit(self._session_id, ops)

    def watch(self, path: str, callback: WatchCallback) -> Watch:
        """See Store."""
        self._check_open()
        watch = self._tree.add(validate_path(path), callback)
        self._own_watches.append(watch)
        return watch

    def new_session(self) -> Store:
        """See Store."""
        self._check_open()
        return TreeStore(self._tree)

    def close(self) -> None:
        """See Store."""
        if self._closed:
            return
        self._closed = True
        for watch in self._own_watches:
            watch.cancel()
        self._tree.close_session(self._session_id)

    def _node(self, path: str) -> Node | None:
        self._check_open()
        with self._tree.backend.read() as txn:
            return txn.get(validate_path(path))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(
                f"session {self._session_id} of the store is closed; open a new one"
            )
        self._tree.check_not_lost(self._session_id)


def _stat(node: Node) -> Stat:
    return Stat(node.czxid, node.mzxid, node.version, node.ephemeral_owner)


def _apply_all(
    txn: WriteTransaction, session_id: int, zxid: int, ops: Sequence[Op], events: list[WatchEvent]
) -> list[str | int | None]:
    results: list[str | int | None] = []
    for index, op in enumerate(ops):
        try:
            results.append(_apply(txn, session_id, zxid, op, events))
        except StoreError as error:
            error.op_index = index
            raise
    return results


def _apply(
    txn: WriteTransaction, session_id: int, zxid: int, op: Op, events: list[WatchEvent]
) -> str | int | None:
    validate_path(op.path)
    if isinstance(op, Create):
        return _create(txn, session_id, zxid, op, events)
    node = txn.get(op.path)
    if node is None:
        raise NoNodeError(f"there is no node {op.path}")
    if op.version not in (ANY_VERSION, node.version):
        raise BadVersionError(
            f"{op.path} is at version {node.version}, not at {op.version}; read it again"
        )
    if isinstance(op, Set):
        txn.put(op.path, node._replace(data=bytes(op.data), mzxid=zxid, version=node.version + 1))
        events.append(WatchEvent("changed", op.path))
        return node.version + 1
    if isinstance(op, Delete):
        if op.path == "/":
            raise BadPathError("the root can't be deleted")
        if txn.children(op.path):
            raise NotEmptyError(f"{op.path} has children; delete them first")
        txn.remove(op.path)
        events.append(WatchEvent("deleted", op.path))
        return None
    assert isinstance(op, Check)
    return None


def _create(
    txn: WriteTransaction, session_id: int, zxid: int, op: Create, events: list[WatchEvent]
) -> str:
    if op.path == "/":
        raise NodeExistsError("the root always exists")
    parent_path = op.path.rpartition("/")[0] or "/"
    parent = txn.get(parent_path)
    if parent is None:
        raise NoNodeError(f"there is no node {parent_path} to create {op.path} in")
    if parent.ephemeral_owner:
        raise EphemeralParentError(f"{parent_path} is ephemeral and can't have children")
    path = op.path
    if op.sequential:
        path = validate_path(f"{path}{parent.created_children:010d}")
    if txn.get(path) is not None:
        raise NodeExistsError(f"{path} already exists")
    txn.put(parent_path, parent._replace(created_children=parent.created_children + 1))
    owner = session_id if op.ephemeral else 0
    txn.put(path, Node(bytes(op.data), zxid, zxid, 0, owner, 0))
    events.append(WatchEvent("created", path))
    return path
