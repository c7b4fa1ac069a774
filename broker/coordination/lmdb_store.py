"""The coordination store in an LMDB environment: durable, for one process.

Every transaction is synced before it is acknowledged. One process has the folder open at a time, so
the ephemeral nodes it finds at opening are those of dead sessions and are deleted. Key layout:
big-endian depth then path, so that a node's children lie side by side; sessions' ephemeral nodes
and counters are under depths that no path has.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import lmdb

from kstore.broker.coordination.store import StoreLockedError
from kstore.broker.coordination.tree import Backend, Node, TreeStore, WriteTransaction

__all__ = ["LmdbStore"]

DEPTH = struct.Struct(">H")
NODE = struct.Struct("<BqqiqQ")
OWNER = struct.Struct(">HQ")
COUNTER = struct.Struct(">Q")
OWNER_DEPTH = 0xFFFE
COUNTER_DEPTH = 0xFFFF
FORMAT_VERSION = 1
MAP_SIZE_BYTES = 1 << 30
"""Address space, not memory or disk: LMDB's file grows as it is used."""


def _key(path: str) -> bytes:
    depth = 0 if path == "/" else path.count("/")
    return DEPTH.pack(depth) + path.encode()


class _LmdbTransaction(WriteTransaction):
    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn

    def get(self, path: str) -> Node | None:
        """See ReadTransaction."""
        value = self._txn.get(_key(path))
        if value is None:
            return Node(b"", 0, 0, 0, 0, 0) if path == "/" else None
        _, czxid, mzxid, version, owner, created_children = NODE.unpack_from(value)
        return Node(bytes(value[NODE.size :]), czxid, mzxid, version, owner, created_children)

    def children(self, path: str) -> list[str]:
        """See ReadTransaction."""
        prefix = _key("/x" if path == "/" else path + "/x")[:-1]
        return [key[len(prefix) :].decode() for key in self._keys(prefix)]

    def put(self, path: str, node: Node) -> None:
        """See WriteTransaction."""
        fields = NODE.pack(FORMAT_VERSION, *node[1:])
        self._txn.put(_key(path), fields + node.data)
        if node.ephemeral_owner:
            self._txn.put(OWNER.pack(OWNER_DEPTH, node.ephemeral_owner) + path.encode(), b"")

    def remove(self, path: str) -> None:
        """See WriteTransaction."""
        node = self.get(path)
        assert node is not None, path
        self._txn.delete(_key(path))
        if node.ephemeral_owner:
            self._txn.delete(OWNER.pack(OWNER_DEPTH, node.ephemeral_owner) + path.encode())

    def owned(self, session_id: int) -> list[str]:
        """See WriteTransaction."""
        return [
            key[OWNER.size :].decode() for key in self._keys(OWNER.pack(OWNER_DEPTH, session_id))
        ]

    def all_ephemerals(self) -> list[str]:
        """Paths of every session's ephemeral nodes."""
        return [key[OWNER.size :].decode() for key in self._keys(DEPTH.pack(OWNER_DEPTH))]

    def next_counter(self, name: str) -> int:
        """See WriteTransaction."""
        key = DEPTH.pack(COUNTER_DEPTH) + name.encode()
        value = self._txn.get(key)
        count = 1 if value is None else COUNTER.unpack(value)[0] + 1
        self._txn.put(key, COUNTER.pack(count))
        return count

    def _keys(self, prefix: bytes) -> list[bytes]:
        found: list[bytes] = []
        with self._txn.cursor() as cursor:
            if cursor.set_range(prefix):
                for found_key in cursor.iternext(keys=True, values=False):
                    key = bytes(found_key)
                    if not key.startswith(prefix):
                        break
                    found.append(key)
        return found


class _LmdbBackend(Backend):
    def __init__(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)
        self._lock_file = _lock_folder(path)
        try:
            self._env = lmdb.open(path, map_size=MAP_SIZE_BYTES, max_dbs=0, sync=True)
            with self.write() as txn:
                for ephemeral in txn.all_ephemerals():
                    txn.remove(ephemeral)
        except BaseException:
            os.close(self._lock_file)
            raise

    @contextmanager
    def read(self) -> Iterator[_LmdbTransaction]:
        """See Backend."""
        with self._env.begin() as txn:
            yield _LmdbTransaction(txn)

    @contextmanager
    def write(self) -> Iterator[_LmdbTransaction]:
        """See Backend."""
        with self._env.begin(write=True) as txn:
            yield _LmdbTransaction(txn)

    def close(self) -> None:
        """See Backend."""
        self._env.close()
        os.close(self._lock_file)


class LmdbStore(TreeStore):
    """The tree in the folder ``path`` (made if missing) and a first session; StoreLockedError if it
    is open elsewhere.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(_LmdbBackend(os.fspath(path)))


def _lock_folder(path: str) -> int:
    descriptor = os.open(os.path.join(path, "owner"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreLockedError(
            f"the coordination store {path} is open in process {holder}; stop it or use another"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
