"""The coordination store in an LMDB environment. It is durable, and used by one process, or shared
by the processes of one machine.

Every transaction is synced before it is acknowledged. A store that is not shared is open in one
process, so all sessions that it contains at opening are dead. Processes of a shared store detect
each other's death through liveness.py. Every transaction appends its changes to a log of changes,
from which the other processes read them. A key is the big-endian depth of a path and then the path,
so that a node's children are adjacent. All other keys have depths that no path has.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import lmdb

from kstore._fast.record.crc32c import checksum as crc32c
from kstore.broker.coordination.liveness import SessionFiles
from kstore.broker.coordination.lmdb_files import (
    BACKUP,
    DATA,
    check,
    damaged,
    is_saved_copy,
    keep_private,
    lock_folder,
    opening,
)
from kstore.broker.coordination.store import (
    StoreClosedError,
    StoreDamagedError,
    StoreDiskError,
    StoreError,
    StoreUnavailableError,
    WatchEvent,
)
from kstore.broker.coordination.tree import (
    Backend,
    Node,
    SharedTree,
    TreeStore,
    WriteTransaction,
)
from kstore.log.index.environment import DAMAGE
from kstore.log.index.spare_room import keep_room
from kstore.private_files import PRIVATE_FILE, UnsafeFileError, open_private

if TYPE_CHECKING:
    from kstore.broker.coordination.peers import PeerWatcher

__all__ = ["LmdbStore", "read_nodes"]

LOGGER = logging.getLogger("kstore.broker")

DEPTH = struct.Struct(">H")
NODE = struct.Struct("<BqqiqQ")
OWNER = struct.Struct(">HQ")  # and data by session or transaction
COUNTER = struct.Struct(">Q")
CRC = struct.Struct(">I")
CHECK_DEPTH = 0xFFFB
CHANGES_DEPTH = 0xFFFC
SESSION_DEPTH = 0xFFFD
OWNER_DEPTH = 0xFFFE
COUNTER_DEPTH = 0xFFFF
FORMAT_VERSION = 1
MAP_SIZE_BYTES = 1 << 30
"""Address space, not memory or disk. LMDB's file grows as it is used."""
LEAST_ROOM_BYTES, ROOM_SHARE = 1 << 20, 2.5
"""The disk space behind the file, so that topics can be deleted while the disk is full. At least
half of it is always there: a transaction can write every page of the file again.
"""
SESSIONS = "sessions"
CHANGES_KEPT = 4096
"""The length of the log of changes. A process that has missed more transactions must read
everything again.
"""


def _key(path: str) -> bytes:
    depth = 0 if path == "/" else path.count("/")
    return DEPTH.pack(depth) + path.encode()


def _check_key(path: str) -> bytes:
    return DEPTH.pack(CHECK_DEPTH) + path.encode()


def _checked(path: str, node: Node) -> bytes:
    """The values stored with a node: its mzxid, and the CRC-32C of its fields, path and data."""
    fields = NODE.pack(FORMAT_VERSION, *node[1:5], 0)
    return COUNTER.pack(node.mzxid) + CRC.pack(crc32c(node.data, crc32c(fields + path.encode())))


class _LmdbTransaction(WriteTransaction):
    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn

    def get(self, path: str) -> Node | None:
        """See ReadTransaction."""
        value = self._txn.get(_key(path))
        if value is None:
            return Node(b"", 0, 0, 0, 0, 0) if path == "/" else None
        written, czxid, mzxid, version, owner, created_children = NODE.unpack_from(value)
        if written > FORMAT_VERSION:
            raise StoreError(
                f"the coordination store has format {written}, and this version of kstore reads "
                f"{FORMAT_VERSION}: use the newer version that wrote it, or restore a backup from "
                "before the upgrade"
            )
        node = Node(bytes(value[NODE.size :]), czxid, mzxid, version, owner, created_children)
        check = self._txn.get(_check_key(path))
        # A version of kstore without checksums may have written the node later; then the zxid
        # differs.
        if check is not None and check[:8] == COUNTER.pack(mzxid) and check != _checked(path, node):
            raise StoreDamagedError(
                f"the node {path} of the coordination store is damaged: its checksum is wrong. "
                f"Stop its brokers, restore a copy of {DATA}, and check the disk"
            )
        return node

    def children(self, path: str) -> list[str]:
        """See ReadTransaction."""
        prefix = _key("/x" if path == "/" else path + "/x")[:-1]
        return [key[len(prefix) :].decode() for key in self.keys_of(prefix)]

    def put(self, path: str, node: Node) -> None:
        """See WriteTransaction."""
        fields = NODE.pack(FORMAT_VERSION, *node[1:])
        self._txn.put(_key(path), fields + node.data)
        self._txn.put(_check_key(path), _checked(path, node))
        if node.ephemeral_owner:
            self._txn.put(OWNER.pack(OWNER_DEPTH, node.ephemeral_owner) + path.encode(), b"")

    def remove(self, path: str) -> None:
        """See WriteTransaction."""
        node = self.get(path)
        assert node is not None, path
        self._txn.delete(_key(path))
        self._txn.delete(_check_key(path))
        if node.ephemeral_owner:
            self._txn.delete(OWNER.pack(OWNER_DEPTH, node.ephemeral_owner) + path.encode())

    def owned(self, session_id: int) -> list[str]:
        """See WriteTransaction."""
        return [
            key[OWNER.size :].decode() for key in self.keys_of(OWNER.pack(OWNER_DEPTH, session_id))
        ]

    def sessions(self) -> list[int]:
        """See ReadTransaction."""
        return [OWNER.unpack(key)[1] for key in self.keys_of(DEPTH.pack(SESSION_DEPTH))]

    def owners(self) -> set[int]:
        """The sessions that own ephemeral nodes."""
        return {OWNER.unpack_from(key)[1] for key in self.keys_of(DEPTH.pack(OWNER_DEPTH))}

    def add_session(self, session_id: int) -> None:
        """See WriteTransaction."""
        self._txn.put(OWNER.pack(SESSION_DEPTH, session_id), b"")

    def remove_session(self, session_id: int) -> None:
        """See WriteTransaction."""
        self._txn.delete(OWNER.pack(SESSION_DEPTH, session_id))

    def last_zxid(self) -> int:
        """See ReadTransaction."""
        value = self._txn.get(DEPTH.pack(COUNTER_DEPTH) + b"zxid")
        return 0 if value is None else int(COUNTER.unpack(value)[0])

    def note_changes(self, zxid: int, events: Sequence[WatchEvent]) -> None:
        """See WriteTransaction."""
        self._txn.put(OWNER.pack(CHANGES_DEPTH, zxid), json.dumps(events).encode())
        self._txn.delete(OWNER.pack(CHANGES_DEPTH, max(zxid - CHANGES_KEPT, 0)))

    def changes_after(self, zxid: int) -> list[WatchEvent] | None:
        """See ReadTransaction."""
        found: list[WatchEvent] = []
        for each in range(zxid + 1, self.last_zxid() + 1):
            value = self._txn.get(OWNER.pack(CHANGES_DEPTH, each))
            if value is None:
                return None
            found += [WatchEvent(*event) for event in json.loads(bytes(value))]
        return found

    def next_counter(self, name: str) -> int:
        """See WriteTransaction."""
        key = DEPTH.pack(COUNTER_DEPTH) + name.encode()
        value = self._txn.get(key)
        count = 1 if value is None else COUNTER.unpack(value)[0] + 1
        self._txn.put(key, COUNTER.pack(count))
        return count

    def keys_of(self, prefix: bytes) -> list[bytes]:
        """All keys with this prefix, sorted."""
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
    def __init__(self, path: str, shared_timeout_ms: int = 0, stall_timeout_ms: int = 0) -> None:
        """``shared_timeout_ms`` is 0 for a store that is not shared."""
        shared = shared_timeout_ms > 0
        self._path = path
        self._process = os.getpid()
        with self._store_errors():
            keep_private(path)
            self._lock_file = lock_folder(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        self.files: SessionFiles | None = None
        self.peers: PeerWatcher | None = None
        self.on_close: Callable[[], object] | None = None
        try:
            with self._store_errors():
                if shared:
                    sessions = os.path.join(path, SESSIONS)
                    self.files = SessionFiles(sessions, shared_timeout_ms, stall_timeout_ms)
                with opening(path):
                    check(path)
                    is_saved = is_saved_copy(path)
                    self._env = lmdb.open(
                        path, map_size=MAP_SIZE_BYTES, max_dbs=0, sync=True, mode=PRIVATE_FILE
                    )
                self._env.reader_check()  # removes the readers of dead processes
                self._keep_room()
            if not is_saved:
                self._back_up()
        except BaseException:
            os.close(self._lock_file)
            raise
        _open_backends.add(self)

    @contextmanager
    def read(self) -> Iterator[_LmdbTransaction]:
        """See Backend."""
        with self._store_errors(), self._env.begin() as txn:
            yield _LmdbTransaction(txn)

    @contextmanager
    def write(self) -> Iterator[_LmdbTransaction]:
        """See Backend."""
        with self._store_errors(), self._env.begin(write=True) as txn:
            yield _LmdbTransaction(txn)
        self._keep_room()
        if self.files is not None:
            # LMDB shows a commit to readers only after its last write to a file, so the others must
            # be woken after that.
            os.pwrite(self._lock_file, b"!", 0)

    def _keep_room(self) -> None:
        keep_room(
            os.path.join(self._path, DATA), LEAST_ROOM_BYTES, ROOM_SHARE, most_bytes=MAP_SIZE_BYTES
        )

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Convert errors of LMDB and of other files to the store's errors."""
        if os.getpid() != self._process:
            raise StoreClosedError(
                f"the coordination store {self._path} was opened by process {self._process}, and a "
                "forked child can't share it: open it in this process"
            )
        try:
            yield
        except UnsafeFileError as error:
            raise StoreError(str(error)) from error
        except DAMAGE as error:
            raise StoreUnavailableError(damaged(self._path, str(error))) from error
        except lmdb.Error as error:
            raise StoreDiskError(
                f"the coordination store {self._path} can't be used: {error}; check its disk, and "
                "free some space if it is full"
            ) from error

    def _back_up(self) -> None:
        """Save a copy of the whole tree, in case the file gets damaged."""
        path = os.path.join(self._path, BACKUP)
        temporary = f"{path}.{os.getpid()}"
        try:
            descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                self._env.copyfd(descriptor, compact=True)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except (OSError, lmdb.Error) as error:
            LOGGER.warning("the coordination store's copy %s can't be written: %s", path, error)

    def dead_sessions(self) -> list[int]:
        """The sessions in the tree whose processes have ended."""
        with self.read() as txn:
            known = {*txn.sessions(), *txn.owners()}
        return [each for each in sorted(known) if self.files is None or self.files.is_dead(each)]

    def session_begins(self, session_id: int) -> None:
        """See Backend."""
        if self.files is not None:
            self.files.hold(session_id)

    def session_ended(self, session_id: int) -> None:
        """See Backend."""
        if self.files is not None:
            self.files.release(session_id)

    def has_ended(self, session_id: int) -> bool:
        """See Backend. A process that is ending releases its lock before the kernel reports its
        end.
        """
        ended = self.files is not None and self.files.is_dead(session_id)
        if ended and self.peers is not None:
            self.peers.look()
        return ended

    def after_fork(self) -> None:
        """Call it in a forked child process: drops the parent's locks, and allows the child to open
        the store.
        """
        self._env.close()
        os.close(self._lock_file)
        if self.files is not None:
            self.files.after_fork()

    def close(self) -> None:
        """See Backend."""
        if os.getpid() != self._process:
            return
        _open_backends.discard(self)
        if self.on_close is not None:
            self.on_close()
        if self.peers is not None:
            self.peers.stop()
        self._back_up()
        self._env.close()
        os.close(self._lock_file)


class LmdbStore(TreeStore):
    """A session on the tree in the folder ``path``, which is created if missing.

    If not ``shared``, raises StoreLockedError if another process has it open. If ``shared``, any
    number of processes on this machine can open it. The ephemeral nodes of a killed process are
    deleted at once, those of a process that hangs after ``session_timeout_ms``, those of a process
    that a signal has stopped after ``stall_timeout_ms``, unless that is 0.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shared: bool = False,
        session_timeout_ms: int = 18_000,
        stall_timeout_ms: int = 0,
    ) -> None:
        folder = os.path.realpath(path)
        if not shared:
            super().__init__(_opened(_LmdbBackend(folder)))
            return
        from kstore.broker.coordination.peers import PeerWatcher

        with _SHARED_LOCK:  # LMDB allows one environment per process
            tree = _SHARED_TREES.get(folder)
            if tree is None:
                backend = _LmdbBackend(folder, session_timeout_ms, stall_timeout_ms)
                tree = _SHARED_TREES[folder] = _opened(backend)
                backend.on_close = lambda: _SHARED_TREES.pop(folder)
                assert backend.files is not None
                backend.peers = PeerWatcher(folder, tree, backend.files)
            super().__init__(tree)


def read_nodes(path: str) -> dict[str, bytes]:
    """The persistent nodes of the store in a folder at one moment: path to data. Another process
    may have the store open. This takes no lock and changes nothing. Raises StoreError.
    """
    check(path)
    found: dict[str, bytes] = {}
    try:
        with lmdb.open(path, readonly=True, create=False, max_dbs=0) as env, env.begin() as txn:
            nodes = _LmdbTransaction(txn)
            for key in nodes.keys_of(b""):
                if key[:2] >= DEPTH.pack(CHECK_DEPTH):
                    break
                name = key[DEPTH.size :].decode()
                node = nodes.get(name)
                if node is not None and not node.ephemeral_owner and name != "/":
                    found[name] = node.data
    except DAMAGE as error:
        raise StoreUnavailableError(damaged(path, str(error))) from error
    except lmdb.Error as error:
        raise StoreUnavailableError(
            f"the coordination store {path} can't be read: {error}; check its folder"
        ) from error
    return found


_open_backends: weakref.WeakSet[_LmdbBackend] = weakref.WeakSet()
_SHARED_TREES: dict[str, SharedTree] = {}
_SHARED_LOCK = threading.RLock()


def _after_fork() -> None:
    global _SHARED_LOCK
    _SHARED_LOCK = threading.RLock()
    _SHARED_TREES.clear()
    for backend in tuple(_open_backends):
        backend.after_fork()
    _open_backends.clear()


os.register_at_fork(after_in_child=_after_fork)


def _opened(backend: _LmdbBackend) -> SharedTree:
    tree = SharedTree(backend)
    for session_id in backend.dead_sessions():
        tree.expire(session_id)
        if backend.files is not None:
            backend.files.remove(session_id)
    return tree
