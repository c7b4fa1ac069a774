"""The alternatives for a durable log in a process, with a common interface: kstore, SQLite in WAL
mode, LMDB, RocksDB, and the raw file, which none of them can beat. Keys are ascending 8-byte
numbers. Each call appends one batch in one transaction.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bench import frames

__all__ = ["PEERS", "KstoreBatches", "KstoreLog", "LmdbStore", "RawFile", "RocksStore", "Store"]

READ_CHUNK_BYTES = 1 << 20


class Store(Protocol):
    """One contestant. With `synced`, an append returns only when its bytes are on disk."""

    name: str

    def __init__(self, folder: Path, *, synced: bool) -> None: ...

    def append(self, values: Sequence[bytes]) -> None:
        """Append one batch. Any thread may call it."""

    def read_all(self) -> tuple[int, int]:
        """Read every value from the beginning. Returns the number of values and of their bytes."""

    def close(self) -> None:
        """Close the store."""


class KstoreLog:
    """kstore's log with Python values."""

    name = "kstore"
    flush: str | None = None  # subclasses set another policy

    def __init__(self, folder: Path, *, synced: bool) -> None:
        import kstore

        self._log: Any = kstore.open_log(folder, flush=self.flush or ("always" if synced else "os"))

    def append(self, values: Sequence[bytes]) -> None:
        """See Store."""
        if len(values) == 1:
            self._log.append(values[0])
        else:
            self._log.append_many(values)

    def read_all(self) -> tuple[int, int]:
        """See Store."""
        count = size = 0
        offset, end = 0, self._log.log_end_offset
        while offset < end:
            found = self._log.read(offset, READ_CHUNK_BYTES)
            for record in found:
                count += 1
                size += len(record.value)
            offset = record.offset + 1
        return count, size

    def close(self) -> None:
        """See Store."""
        self._log.close()


class KstoreInterval(KstoreLog):
    """kstore's log, flushed by its timer."""

    name = "kstore, flushed each second"
    flush = "interval"


class KstoreBatches(KstoreLog):
    """kstore's log with ready batches, as a broker gets them: validated, then written."""

    name = "kstore, ready batches"

    def __init__(self, folder: Path, *, synced: bool) -> None:
        super().__init__(folder, synced=synced)
        self._ready: dict[int, bytearray] = {}

    def append(self, values: Sequence[bytes]) -> None:
        """See Store. A batch that was used before is used again as ready bytes."""
        ready = self._ready.get(id(values))
        if ready is None:
            ready = self._ready[id(values)] = bytearray(frames.record_batch(list(values)))
        self._log.append_batches(ready, leader_epoch=0)

    def read_all(self) -> tuple[int, int]:
        """See Store. Whole batches as they are in the file, not decoded: this counts bytes, not
        records.
        """
        size = 0
        offset, end = 0, self._log.log_end_offset
        while offset < end:
            found = memoryview(self._log.read_batches(offset, READ_CHUNK_BYTES))
            size += len(found)
            offset = _next_offset(found)
        return 0, size


def _next_offset(batches: memoryview) -> int:
    position = offset = 0
    while position < len(batches):
        base, length = struct.unpack_from(">qi", batches, position)
        (delta,) = struct.unpack_from(">i", batches, position + 23)
        offset, position = base + delta + 1, position + 12 + length
    return offset


class RawFile:
    """The limit: the bytes that kstore would write, by os.write and os.pread."""

    name = "raw file"

    def __init__(self, folder: Path, *, synced: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._file = os.open(folder / "raw", flags)
        self._synced = synced
        self._ready: dict[int, bytes] = {}

    def append(self, values: Sequence[bytes]) -> None:
        """See Store. A batch that was used before is used again as ready bytes."""
        ready = self._ready.get(id(values))
        if ready is None:
            ready = self._ready[id(values)] = frames.record_batch(list(values))
        os.write(self._file, ready)
        if self._synced:
            os.fdatasync(self._file)

    def read_all(self) -> tuple[int, int]:
        """See Store. Only bytes are counted."""
        position = 0
        while found := os.pread(self._file, READ_CHUNK_BYTES, position):
            position += len(found)
        return 0, position

    def close(self) -> None:
        """See Store."""
        os.close(self._file)


class SqliteStore:
    """SQLite in WAL mode; synchronous OFF, or FULL when synced. One connection per thread."""

    name = "SQLite"

    def __init__(self, folder: Path, *, synced: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "log.db"
        self._synced = synced
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._connection().execute(
            "CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, value BLOB NOT NULL)"
        )

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = sqlite3.connect(
                self._path, timeout=60, isolation_level=None, check_same_thread=False
            )
            found.execute("PRAGMA journal_mode=WAL")
            found.execute(f"PRAGMA synchronous={'FULL' if self._synced else 'OFF'}")
            self._local.connection = found
            self._opened.append(found)
        return found

    def append(self, values: Sequence[bytes]) -> None:
        """See Store."""
        connection = self._connection()
        insert = "INSERT INTO log(value) VALUES (?)"
        if len(values) == 1:
            connection.execute(insert, (values[0],))
            return
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, [(value,) for value in values])
        connection.execute("COMMIT")

    def read_all(self) -> tuple[int, int]:
        """See Store."""
        count = size = 0
        for (value,) in self._connection().execute("SELECT value FROM log ORDER BY id"):
            count += 1
            size += len(value)
        return count, size

    def close(self) -> None:
        """See Store."""
        for connection in self._opened:
            connection.close()


class LmdbStore:
    """LMDB; not synced (sync=False), or a sync in every commit."""

    name = "LMDB"

    def __init__(self, folder: Path, *, synced: bool) -> None:
        import lmdb

        folder.mkdir(parents=True, exist_ok=True)
        self._env = lmdb.open(
            str(folder), map_size=8 << 30, sync=synced, metasync=synced, max_readers=64
        )
        self._next = 0

    def append(self, values: Sequence[bytes]) -> None:
        """See Store."""
        with self._env.begin(write=True) as transaction:
            first, self._next = self._next, self._next + len(values)
            if len(values) == 1:
                transaction.put(struct.pack(">q", first), values[0], append=True)
                return
            keys = [struct.pack(">q", number) for number in range(first, self._next)]
            pairs = list(zip(keys, values, strict=True))
            transaction.cursor().putmulti(pairs, append=True)

    def read_all(self) -> tuple[int, int]:
        """See Store."""
        count = size = 0
        with self._env.begin() as transaction:
            for value in transaction.cursor().iternext(keys=False, values=True):
                count += 1
                size += len(value)
        return count, size

    def close(self) -> None:
        """See Store."""
        self._env.close()


class RocksStore:
    """RocksDB through rocksdict with its defaults; its write-ahead log is synced or not."""

    name = "RocksDB"

    def __init__(self, folder: Path, *, synced: bool) -> None:
        from rocksdict import Options, Rdict, WriteBatch, WriteOptions

        self._db = Rdict(str(folder), Options(raw_mode=True))
        options = WriteOptions()
        options.sync = synced
        self._options = options
        self._batch = WriteBatch
        self._lock = threading.Lock()
        self._next = 0

    def append(self, values: Sequence[bytes]) -> None:
        """See Store."""
        with self._lock:
            first, self._next = self._next, self._next + len(values)
        if len(values) == 1:
            self._db.put(struct.pack(">q", first), values[0], write_opt=self._options)
            return
        batch = self._batch(raw_mode=True)
        for number, value in enumerate(values, first):
            batch.put(struct.pack(">q", number), value)
        self._db.write(batch, write_opt=self._options)

    def read_all(self) -> tuple[int, int]:
        """See Store."""
        count = size = 0
        for value in self._db.values():
            count += 1
            size += len(value)
        return count, size

    def close(self) -> None:
        """See Store."""
        self._db.close()


PEERS: list[type[Store]] = [SqliteStore, LmdbStore, RocksStore]
