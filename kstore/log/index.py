"""The index environment of a log dir: one LMDB file with what is rebuilt from the segments if it is
lost. It holds each log's state, pages of index entries, and producer snapshots; written in batches
off the append path. Nothing here decides what is true: the segment files are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import lmdb

from kstore._fast.log_segment import LogSegment
from kstore.private_files import PRIVATE_FILE, make_private, refuse_link

__all__ = ["ENVIRONMENT_NAME", "IndexStore", "LogState", "SegmentState", "boot_id"]

ENVIRONMENT_NAME = ".kstore.mdb"
# A directory's time stamp is this coarse: what changes right after a look may leave it as it was.
STAMP_NS = 50_000_000
ENTRIES_PER_PAGE = 128
ENTRY_BYTES = 16
WINDOW_PAGES = 16
NO_WINDOW = 2**63 - 1
_FIRST_MAP_BYTES = 1 << 34  # virtual; the file is as large as its content
_VERSION = 2
_STATE = struct.Struct("<B16s16sqqqqqqqqqqqqqqqBII")
_SEGMENT = struct.Struct("<qqqqqq")
_EPOCH = struct.Struct("<iq")
_CRC = struct.Struct("<I")


def boot_id() -> bytes:
    """16 bytes that change when the machine starts anew; random where that can't be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return uuid.UUID(file.read().strip()).bytes
    except (OSError, ValueError):
        return os.urandom(16)


@dataclass(frozen=True)
class SegmentState:
    """A sealed segment whose whole index is in the environment."""

    base_offset: int
    size_bytes: int
    next_offset: int
    max_timestamp: int
    first_timestamp: int
    entries: int


@dataclass
class LogState:
    """What the environment has of one log: everything below ``position`` of the segment
    ``active_base`` is indexed, everything below ``durable_position`` of ``durable_base`` synced.
    """

    topic_id: bytes = bytes(16)
    boot: bytes = bytes(16)
    changes: int = 0  # truncations and cleanings: a reader has to load the log anew
    log_start_offset: int = 0
    high_watermark: int = 0
    durable_base: int = 0
    durable_position: int = 0
    durable_offset: int = 0
    active_base: int = 0
    position: int = 0
    next_offset: int = 0
    entries: int = 0
    max_timestamp: int = -1
    first_timestamp: int = -1
    bytes_since_entry: int = 0
    cleaned_offset: int = -1  # below it the cleaner has been; -1: never
    listed_ns: int = 0  # the directory's time stamp: while it has that, its files are these
    has_producers: bool = False
    sealed: list[SegmentState] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def pack(self) -> bytes:
        """The value in the environment, with its own checksum."""
        head = _STATE.pack(
            _VERSION, self.topic_id, self.boot, self.changes, self.log_start_offset,
            self.high_watermark, self.durable_base, self.durable_position, self.durable_offset,
            self.active_base, self.position, self.next_offset, self.entries, self.max_timestamp,
            self.first_timestamp, self.bytes_since_entry, self.cleaned_offset, self.listed_ns,
            self.has_producers, len(self.sealed), len(self.epochs),
        )  # fmt: skip
        rows = [
            _SEGMENT.pack(
                s.base_offset, s.size_bytes, s.next_offset, s.max_timestamp, s.first_timestamp,
                s.entries,
            )
            for s in self.sealed
        ]  # fmt: skip
        body = b"".join([head, *rows, *(_EPOCH.pack(*entry) for entry in self.epochs)])
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def unpack(cls, value: bytes) -> LogState | None:
        """The state in a value, None if it is damaged or of another version."""
        body = value[: -_CRC.size]
        if len(body) < _STATE.size or body[0] != _VERSION:
            return None
        if _CRC.pack(zlib.crc32(body)) != value[-_CRC.size :]:
            return None
        fields = _STATE.unpack_from(body)
        state = cls(*fields[1:19])
        at = _STATE.size
        for _ in range(fields[19]):
            state.sealed.append(SegmentState(*_SEGMENT.unpack_from(body, at)))
            at += _SEGMENT.size
        for _ in range(fields[20]):
            epoch, start_offset = _EPOCH.unpack_from(body, at)
            state.epochs.append((epoch, start_offset))
            at += _EPOCH.size
        return state


class _SharedEnvironment:
    """An LMDB environment may be open only once in a process: all who want it share it."""

    open: dict[str, _SharedEnvironment] = {}  # noqa: RUF012 (the point is that it is shared)
    guard = threading.Lock()

    def __init__(self, path: str, *, create: bool) -> None:
        self.path = path
        self.users = 0
        self.writable = create or os.access(path, os.W_OK)
        for each in (path, path + "-lock"):
            if create:
                make_private(each)
            else:
                refuse_link(each)
        self.lmdb = lmdb.open(
            path,
            subdir=False,
            map_size=_FIRST_MAP_BYTES,
            readonly=not self.writable,
            create=create,
            readahead=False,
            max_readers=510,
            lock=self.writable or os.access(os.path.dirname(path), os.W_OK),
            mode=PRIVATE_FILE,
        )
        info = self.lmdb.info()
        pages = (info["last_pgno"] + 1) * self.lmdb.stat()["psize"]
        if os.path.getsize(path) < pages:
            # Reading a page that the file does not have would be a bus error.
            self.lmdb.close()
            raise lmdb.CorruptedError(f"{path} is shorter than its last page")


class IndexStore:
    """The index environment of one log dir. Thread-safe; writes are durable when they return."""

    def __init__(self, directory: str, *, read_only: bool) -> None:
        self.path = os.path.join(os.path.realpath(directory), ENVIRONMENT_NAME)
        self.rebuilt = False
        self._pid = os.getpid()
        self._shared = self._open(read_only)
        self.lmdb = self._shared.lmdb if self._shared is not None else None

    def _open(self, read_only: bool) -> _SharedEnvironment | None:
        with _SharedEnvironment.guard:
            shared = _SharedEnvironment.open.get(self.path)
            if shared is None:
                if read_only and not os.path.exists(self.path):
                    return None
                shared = self._open_or_rebuild(read_only)
                if shared is None:
                    return None
                _SharedEnvironment.open[self.path] = shared
            shared.users += 1
            return shared

    def _open_or_rebuild(self, read_only: bool) -> _SharedEnvironment | None:
        try:
            shared = _SharedEnvironment(self.path, create=not read_only)
            if not read_only:
                shared.lmdb.reader_check()
            return shared
        except lmdb.Error:
            if read_only:
                return None
        # Damaged: everything in it is rebuilt from the segments.
        for path in (self.path, self.path + "-lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self.rebuilt = True
        return _SharedEnvironment(self.path, create=True)

    def close(self) -> None:
        """Let the environment go; the last user closes it."""
        shared, self._shared, self.lmdb = self._shared, None, None
        if shared is None or os.getpid() != self._pid:
            return
        with _SharedEnvironment.guard:
            shared.users -= 1
            if shared.users == 0:
                del _SharedEnvironment.open[self.path]
                shared.lmdb.close()

    @contextlib.contextmanager
    def write(self) -> Iterator[Any]:
        """A write transaction. Where the map is full it is made larger, and MapFullError raised:
        do it again. OSError for whatever else LMDB can't do.
        """
        assert self.lmdb is not None
        try:
            with self.lmdb.begin(write=True) as transaction:
                yield transaction
        except lmdb.MapFullError:
            self.lmdb.set_mapsize(self.lmdb.info()["map_size"] * 2)
            raise
        except lmdb.Error as error:
            number = errno.ENOSPC if "space" in str(error) else errno.EIO
            raise OSError(number, f"the index can't be written: {error}", self.path) from error

    def _get(self, key: bytes) -> bytes | None:
        if self.lmdb is None:
            return None
        try:
            with self.lmdb.begin() as transaction:
                value: bytes | None = transaction.get(key)
                return value
        except lmdb.MapResizedError:
            self.lmdb.set_mapsize(0)  # another process has made it larger
            return self._get(key)
        except lmdb.CorruptedError:
            return None  # as if it were not there: the segments are the truth

    # -- states

    def state(self, name: str) -> LogState | None:
        """What is known of the log in this directory."""
        value = self._get(_key(b"L", name))
        return None if value is None else LogState.unpack(value)

    def put_state(self, transaction: Any, name: str, state: LogState) -> None:
        """Write what is known of a log."""
        transaction.put(_key(b"L", name), state.pack())

    def forget_log(self, name: str) -> None:
        """Forget everything of a log."""
        with self.write() as transaction:
            for kind in (b"L", b"P", b"R"):
                _delete_from(transaction, _key(kind, name), b"")

    # -- index pages

    def put_pages(self, transaction: Any, name: str, pages: list[tuple[int, int, bytes]]) -> None:
        """Write pages: (segment base offset, the page's first offset, packed entries)."""
        for base, first, page in pages:
            transaction.put(_page_key(name, base, first), page)

    def forget_pages(
        self, transaction: Any, name: str, base: int, from_offset: int | None = None
    ) -> None:
        """Forget a segment's pages, all or those that begin at an offset or later."""
        prefix = _page_prefix(name, base)
        start = b"" if from_offset is None else struct.pack(">I", from_offset - base)
        _delete_from(transaction, prefix, start)

    def pages(self, name: str, base: int) -> bytes:
        """All entries of a segment, packed."""
        prefix = _page_prefix(name, base)
        found = []
        if self.lmdb is not None:
            with self.lmdb.begin() as transaction, transaction.cursor() as cursor:
                there = cursor.set_range(prefix)
                while there and cursor.key().startswith(prefix):
                    found.append(cursor.value())
                    there = cursor.next()
        return b"".join(found)

    def load_window(self, name: str, segment: LogSegment, offset: int) -> bool:
        """Bring a sealed segment's entries around an offset into memory; False: there are none."""
        if self.lmdb is None:
            return False
        prefix = _page_prefix(name, segment.base_offset)
        wanted = _page_key(name, segment.base_offset, offset)
        with self.lmdb.begin() as transaction, transaction.cursor() as cursor:
            there = cursor.set_range(wanted)
            if not there or cursor.key() != wanted:
                there = cursor.prev() if there else cursor.last()
            if not there or not cursor.key().startswith(prefix):
                there = cursor.set_range(prefix)
            found: list[bytes] = []
            first = b""
            while there and cursor.key().startswith(prefix) and len(found) < WINDOW_PAGES:
                first = first or cursor.key()
                found.append(cursor.value())
                there = cursor.next()
            end = NO_WINDOW
            if there and cursor.key().startswith(prefix):
                end = segment.base_offset + struct.unpack(">I", cursor.key()[-4:])[0]
            if not found:
                return False
            cursor.set_key(first)
            is_first = not cursor.prev() or not cursor.key().startswith(prefix)
        segment.load(b"".join(found), 0 if is_first else ENTRIES_PER_PAGE, end)
        return True

    # -- producer snapshots

    def put_snapshot(self, transaction: Any, name: str, offset: int, snapshot: bytes) -> None:
        """Write the producers' state as of an offset."""
        transaction.put(_key(b"R", name) + struct.pack(">q", offset), snapshot)

    def snapshots(self, name: str) -> list[int]:
        """The offsets of which there are snapshots, ascending."""
        prefix = _key(b"R", name)
        found = []
        if self.lmdb is not None:
            with self.lmdb.begin() as transaction, transaction.cursor() as cursor:
                there = cursor.set_range(prefix)
                while there and cursor.key().startswith(prefix):
                    found.append(int(struct.unpack(">q", cursor.key()[-8:])[0]))
                    there = cursor.next()
        return found

    def snapshot(self, name: str, offset: int) -> bytes | None:
        """The producers' state as of an offset."""
        return self._get(_key(b"R", name) + struct.pack(">q", offset))

    def forget_snapshots(
        self, transaction: Any, name: str, *, keep: set[int] | None = None, above: int | None = None
    ) -> None:
        """Forget all snapshots but some, or those above an offset."""
        prefix = _key(b"R", name)
        with transaction.cursor() as cursor:
            there = cursor.set_range(prefix)
            while there and cursor.key().startswith(prefix):
                offset = struct.unpack(">q", cursor.key()[-8:])[0]
                gone = offset > above if above is not None else offset not in (keep or ())
                there = cursor.delete() if gone else cursor.next()


def _key(kind: bytes, name: str) -> bytes:
    return kind + name.encode("ascii") + b"\0"


def _page_prefix(name: str, base: int) -> bytes:
    return _key(b"P", name) + struct.pack(">q", base)


def _page_key(name: str, base: int, offset: int) -> bytes:
    delta = min(max(offset - base, 0), 2**32 - 1)
    return _page_prefix(name, base) + struct.pack(">I", delta)


def _delete_from(transaction: Any, prefix: bytes, start: bytes) -> None:
    with transaction.cursor() as cursor:
        there = cursor.set_range(prefix + start)
        while there and cursor.key().startswith(prefix):
            there = cursor.delete()
