"""The contract of the coordination store: the part of ZooKeeper's semantics that brokers use.

A store is one session on a tree of versioned nodes. This file has the contract, its operations and
its errors; the implementations are in other files of this folder. Calls are synchronous,
thread-safe and may block for milliseconds (a durable commit), so a running broker makes them from a
worker thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

__all__ = [
    "ANY_VERSION",
    "BadPathError",
    "BadVersionError",
    "Check",
    "Create",
    "Delete",
    "EphemeralParentError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
    "Op",
    "Set",
    "Stat",
    "Store",
    "StoreClosedError",
    "StoreDamagedError",
    "StoreDiskError",
    "StoreError",
    "StoreLockedError",
    "StoreUnavailableError",
    "Watch",
    "WatchEvent",
    "validate_path",
]

ANY_VERSION = -1
MAX_PATH_BYTES = 500
"""LMDB's keys have at most 511 bytes. ZooKeeper would allow more, but all stores have the same
limit.
"""


class StoreError(Exception):
    """Base of the store's errors. ``op_index`` is the index of the failed operation in a multi."""

    op_index: int = 0


class NoNodeError(StoreError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExistsError(StoreError):
    """The node to create exists already."""


class BadVersionError(StoreError):
    """The node's version is not the expected one: another session has written the node."""


class NotEmptyError(StoreError):
    """The node to delete has children."""


class EphemeralParentError(StoreError):
    """An ephemeral node cannot have children."""


class BadPathError(StoreError):
    """The path is not absolute, or not in normal form."""


class StoreClosedError(StoreError):
    """The session is over; its ephemeral nodes are deleted."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached; the operation may or may not have been executed."""


class StoreDiskError(StoreUnavailableError):
    """The disk of the store is full, or fails."""


class StoreDamagedError(StoreError):
    """The store's data is damaged on its disk. It cannot be rebuilt from other data."""


class StoreLockedError(StoreError):
    """Another process has the store's folder open."""


class Stat(NamedTuple):
    """The metadata of a node. ``czxid`` and ``mzxid`` are the transactions that created and last
    wrote it.

    They increase over the whole tree, so the czxid of ``/brokers/ids/N`` is the broker epoch
    (KIP-380). ``ephemeral_owner`` is a session id, 0 for a persistent node.
    """

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int


class Create(NamedTuple):
    """Create a node with version 0. If it is sequential, ten digits that increase with every child
    are appended to the path.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Write a node's data, if the node has this version (or ANY_VERSION)."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children, if the node has this version (or ANY_VERSION)."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the multi unless the node exists and has this version (or ANY_VERSION). Changes
    nothing.
    """

    path: str
    version: int = ANY_VERSION


Op: TypeAlias = Create | Set | Delete | Check


class WatchEvent(NamedTuple):
    """An event at ``path``; ``kind`` is created, changed or deleted. Read the node again to see its
    state.
    """

    kind: str
    path: str


WatchCallback: TypeAlias = Callable[[WatchEvent], None]


class Watch(ABC):
    """A watch that remains until it is cancelled or its session is closed."""

    @abstractmethod
    def cancel(self) -> None:
        """Stop deliveries. Safe to call twice, and from the callback."""


class Store(ABC):
    """One session on a tree of nodes. The root ``/`` always exists and is never deleted."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """This session's id. It was never used before on this tree, and is never 0."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether this process knows that the session is over: closed, or ended by others. Never
        blocks.

        Watches are notified once when it becomes true.
        """

    def has_expired(self) -> bool:
        """Whether the session is over. Reads the store if that cannot block; otherwise the same as
        `over`.
        """
        return self.over

    @property
    def away(self) -> bool:
        """Whether the store cannot be reached now: calls raise StoreUnavailableError at once. Never
        blocks.
        """
        return False

    @property
    def in_doubt(self) -> bool:
        """Whether the store has been unreachable for so long that it may have ended the session.
        Never blocks.
        """
        return False

    def on_contact(self, callback: Callable[[], None]) -> None:  # noqa: B027
        """Set a callback for changes of `away` or `in_doubt`. It runs on a thread of the store."""

    @abstractmethod
    def get(self, path: str) -> tuple[bytes, int]:
        """The node's data and version. Raises NoNodeError."""

    @abstractmethod
    def stat(self, path: str) -> Stat | None:
        """The node's transaction ids, version and owner. None if it does not exist."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """The names (not paths) of the node's children, sorted. Raises NoNodeError."""

    def owner_has_ended(self, path: str) -> bool | None:
        """Whether an ephemeral node still exists although its owner's process has certainly ended,
        so that the store is about to delete it. None if the store does not know processes. Never
        blocks.
        """
        return None

    @abstractmethod
    def multi(self, ops: Sequence[Op]) -> list[str | int | None]:
        """Execute all operations in order as one durable transaction, or none of them.

        Returns for each operation: the created path, the new version, or None. Raises the first
        failing operation's error with its ``op_index``. Later operations see the effects of earlier
        ones.
        """

    @abstractmethod
    def watch(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after every later change at or below ``path``, in the order of the changes.

        The node need not exist. Several changes to one node may be reported as one. The callback
        runs on any thread of the store, possibly the writer's, outside any lock: pass the event to
        the loop and return.
        """

    @abstractmethod
    def new_session(self) -> Store:
        """Another session on the same tree."""

    @abstractmethod
    def close(self) -> None:
        """End the session: its watches stop and its ephemeral nodes are deleted. Safe to call
        twice.
        """

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        """Create a node and return its path. Raises NodeExistsError, NoNodeError or
        EphemeralParentError.

        With ``parents``, missing persistent ancestors are created first, each in a separate
        transaction.
        """
        if parents:
            self.ensure(path.rpartition("/")[0])
        return str(self.multi([Create(path, data, ephemeral, sequential)])[0])

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Write a node's data and return its new version. Raises NoNodeError or BadVersionError."""
        result = self.multi([Set(path, data, version)])[0]
        assert isinstance(result, int)
        return result

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children. Raises NoNodeError, BadVersionError or NotEmptyError."""
        self.multi([Delete(path, version)])

    def read_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Data and stat of each node; None for a node that does not exist. Each is as it was at
        some moment during the call.
        """
        found: list[tuple[bytes, Stat] | None] = []
        for path in paths:
            try:
                stat, (data, version) = self.stat(path), self.get(path)
            except NoNodeError:
                stat = None
            found.append(None if stat is None else (data, stat._replace(version=version)))
        return found

    def exists(self, path: str) -> bool:
        """Whether the node exists."""
        return self.stat(path) is not None

    def ensure(self, path: str) -> None:
        """Create the node and its ancestors, empty and persistent, if they are missing."""
        if path in {"", "/"} or self.exists(path):
            return
        self.ensure(path.rpartition("/")[0])
        try:
            self.multi([Create(path)])
        except NodeExistsError:
            return  # another session has created it


def validate_path(path: str) -> str:
    """Return the path. Raises BadPathError unless it is absolute, with ``/`` between names, without
    empty, ``.`` or ``..`` names, and without control characters.
    """
    if path == "/":
        return path
    names = path.split("/")
    if (
        len(names) < 2
        or names[0] != ""
        or any(name in {"", ".", ".."} for name in names[1:])
        or any(ord(character) < 0x20 for character in path)
    ):
        raise BadPathError(f"{path!r} is not a node path; use one like /brokers/topics/orders")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise BadPathError(f"the path {path[:60]!r}... is longer than {MAX_PATH_BYTES} bytes")
    return path
