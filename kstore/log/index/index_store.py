"""The index environment of a log dir: one LMDB file, which is rebuilt from the segments if it is
lost. It has each log's state, pages of index entries, and producer snapshots, written in batches
off the append path. The segment files are authoritative.
"""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from kstore._fast.log.log_segment import LogSegment
from kstore._fast.record.crc32c import checksum as crc32c
from kstore.log.index.environment import SharedEnvironment

__all__ = ["ENVIRONMENT_NAME", "IndexStore", "LogState", "SegmentState", "boot_id"]

T = TypeVar("T")

ENVIRONMENT_NAME = ".kstore.mdb"
# The resolution of a directory's timestamp: a change right after a check may not change it.
STAMP_NS = 50_000_000
ENTRIES_PER_PAGE = 128
ENTRY_BYTES = 16
WINDOW_PAGES = 16
NO_WINDOW = 2**63 - 1
_VERSION = 2
_STATE = struct.Struct("<B16s16sqqqqqqqqqqqqqqqBII")
_SEGMENT = struct.Struct("<qqqqqq")
_EPOCH = struct.Struct("<iq")
_LOST = struct.Struct("<qqI")
_CRC = struct.Struct("<I")
_DELTA = struct.Struct("=I")  # an entry begins with its batch's base offset in the segment
# The first byte of a snapshot with a checksum; one without begins with 1, its version.
_CHECKED = b"\x02"


def boot_id() -> bytes:
    """16 bytes that change when the machine restarts; random if that can't be detected."""
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
    """The environment's state of one log: everything below ``position`` of the segment
    ``active_base`` is indexed, everything below ``durable_position`` of ``durable_base`` is synced.
    """

    topic_id: bytes = bytes(16)
    boot: bytes = bytes(16)
    changes: int = 0  # truncations and cleanings: a reader must load the log again
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
    cleaned_offset: int = -1  # the cleaner has been below it; -1: never
    listed_ns: int = 0  # the directory's timestamp: while it has that value, its files are these
    has_producers: bool = False
    sealed: list[SegmentState] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    hole_from: int = -1  # from here on a gap between segments may be records that a power loss took
    lost_until: int = 0  # below this offset a replica has lost records after its end; 0: nothing
    lost_epochs: list[tuple[int, int]] = field(default_factory=list)

    def pack(self) -> bytes:
        """The value for the environment, with its own checksum."""
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
        epochs = [_EPOCH.pack(*entry) for entry in self.epochs]
        lost = [_LOST.pack(self.hole_from, self.lost_until, len(self.lost_epochs))]
        lost += [_EPOCH.pack(*entry) for entry in self.lost_epochs]
        body = b"".join([head, *rows, *epochs, *lost])
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def unpack(cls, value: bytes) -> LogState | None:
        """The state in a value; None if it is damaged or of another version."""
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
        at = _unpack_epochs(body, at, fields[20], state.epochs)
        if at < len(body):  # of a version that writes it; older ones do not read past the epochs
            state.hole_from, state.lost_until, count = _LOST.unpack_from(body, at)
            _unpack_epochs(body, at + _LOST.size, count, state.lost_epochs)
        return state


def _unpack_epochs(body: bytes, at: int, count: int, into: list[tuple[int, int]]) -> int:
    """Parse ``count`` leader epochs with their start offsets; returns the position after them."""
    for _ in range(count):
        epoch, start_offset = _EPOCH.unpack_from(body, at)
        into.append((epoch, start_offset))
        at += _EPOCH.size
    return at


class IndexStore:
    """The index environment of one log dir. Thread-safe; writes are durable when they return.

    Each value has a checksum. A damaged value counts as missing, and a damaged file is replaced:
    the segments are authoritative.
    """

    def __init__(self, directory: str, *, read_only: bool, was_closed: bool = False) -> None:
        """``was_closed``: the last writer closed the directory; it was not killed."""
        self.path = os.path.join(os.path.realpath(directory), ENVIRONMENT_NAME)
        self.damaged_values = 0
        self._heal = not read_only
        self._was_closed = was_closed
        self._pid = os.getpid()
        self._on_replaced: Callable[[], object] | None = None
        self._seen = (0, 0, 0)
        self._shared = self._acquire()

    def _acquire(self) -> SharedEnvironment | None:
        if not self._heal:
            try:
                found = os.stat(self.path)
            except FileNotFoundError:
                return None
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen == self._seen:
                return None  # damaged: the writer replaces it
            self._seen = seen
        return SharedEnvironment.acquire(
            self.path, read_only=not self._heal, was_closed=self._was_closed
        )

    @property
    def replaced(self) -> int:
        """How often the environment was damaged and replaced."""
        return self._shared.replaced if self._shared is not None else 0

    def when_replaced(self, callback: Callable[[], object]) -> None:
        """Call ``callback``, from any thread, when the environment was replaced."""
        assert self._shared is not None
        self._on_replaced = callback
        self._shared.on_replaced.append(callback)

    def close(self) -> None:
        """Release the environment; the last user closes it."""
        shared, self._shared = self._shared, None
        if shared is None or os.getpid() != self._pid:
            return
        if self._on_replaced is not None:
            shared.on_replaced.remove(self._on_replaced)
        shared.release()

    def change(self, do: Callable[[Any], T]) -> T:
        """Run ``do`` in a write transaction; it is repeated if the transaction had to be given
        up.
        """
        assert self._shared is not None
        return self._shared.change(do)

    def _look(self, ask: Callable[[Any], T], otherwise: T) -> T:
        if self._shared is None:
            return otherwise
        return self._shared.look(ask, otherwise, heal=self._heal)

    def _get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._look(lambda transaction: transaction.get(key), None)
        return found

    def _items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        nothing: list[tuple[bytes, bytes]] = []
        return self._look(lambda transaction: list(_items(transaction, prefix)), nothing)

    def _is_right(self, key: bytes, value: bytes, checksum: bytes) -> bool:
        """Whether a value is as it was written under this key; otherwise the damage is counted and
        logged.
        """
        if _CRC.pack(crc32c(value, crc32c(key))) == checksum:
            return True
        self._note_damage(key)
        return False

    def _note_damage(self, key: bytes) -> None:
        from logging import getLogger

        self.damaged_values += 1
        getLogger("kstore.log").error(
            "the index %s has a damaged value of %s: it is rebuilt from the segments",
            self.path, key[1:].split(b"\0")[0].decode("ascii", "replace"),
        )  # fmt: skip

    # -- states

    def state(self, name: str) -> LogState | None:
        """The state of the log in this directory."""
        if self._shared is None and not self._heal:
            self._shared = self._acquire()  # the writer has created it meanwhile
        elif self._shared is not None and not self._heal:
            self._shared.follow()
        key = _key(b"L", name)
        value = self._get(key)
        if value is None:
            return None
        state = LogState.unpack(value)
        if state is None and value[0] == _VERSION:
            self._note_damage(key)
        return state

    def put_state(self, transaction: Any, name: str, state: LogState) -> None:
        """Write the state of a log."""
        transaction.put(_key(b"L", name), state.pack())

    def forget_logs(self, names: Iterable[str]) -> None:
        """Delete everything about these logs, in one transaction."""
        prefixes = [_key(kind, name) for name in names for kind in (b"L", b"P", b"R")]

        def forget(transaction: Any) -> None:
            for prefix in prefixes:
                _delete_from(transaction, prefix)

        self.change(forget)

    # -- index pages

    def put_pages(self, transaction: Any, name: str, pages: list[tuple[int, int, bytes]]) -> None:
        """Write pages: (segment base offset, the page's first offset, packed entries). Shorter
        pages that one of them covers, left by processes that were killed, are deleted.
        """
        for base, first, page in pages:
            key = _page_key(name, base, first)
            (last,) = _DELTA.unpack_from(page, len(page) - ENTRY_BYTES)
            prefix, upto = _page_prefix(name, base), _page_key(name, base, base + last)
            _delete_from(transaction, prefix, key.removeprefix(prefix) + b"\0", upto)
            transaction.put(key, page + _CRC.pack(crc32c(page, crc32c(key))))

    def forget_pages(
        self, transaction: Any, name: str, base: int, from_offset: int | None = None
    ) -> None:
        """Delete a segment's pages: all, or those that begin at an offset or later."""
        prefix = _page_prefix(name, base)
        start = b"" if from_offset is None else struct.pack(">I", from_offset - base)
        _delete_from(transaction, prefix, start)

    def pages(self, name: str, base: int) -> bytes:
        """All entries of a segment, packed; those of a damaged page are missing."""
        found = self._items(_page_prefix(name, base))
        return b"".join(self._entries(key, value) for key, value in found)

    def _entries(self, key: bytes, value: bytes) -> bytes:
        """A page's entries; none if it is damaged, or of a version without checksums."""
        page = value[: -_CRC.size]
        if len(page) % ENTRY_BYTES or not self._is_right(key, page, value[-_CRC.size :]):
            return b""
        return page

    def load_window(self, name: str, segment: LogSegment, offset: int) -> bool:
        """Load a sealed segment's entries around an offset into memory; False: there are none, or
        some are damaged.
        """
        base = segment.base_offset
        found = self._look(lambda transaction: _window(transaction, name, base, offset), None)
        if found is None:
            return False
        rows, is_first, end = found
        damaged = segment.load_pages(rows, 0 if is_first else ENTRIES_PER_PAGE, end)
        if damaged is not None:
            if len(dict(rows)[damaged]) % ENTRY_BYTES:  # otherwise of a version without checksums
                self._note_damage(damaged)
            return False
        return True

    # -- producer snapshots

    def put_snapshot(self, transaction: Any, name: str, offset: int, snapshot: bytes) -> None:
        """Write the producers' state as of an offset."""
        key = _snapshot_key(name, offset)
        head = _CHECKED + _CRC.pack(crc32c(snapshot, crc32c(key)))
        transaction.put(key, head + snapshot)

    def snapshots(self, name: str) -> list[int]:
        """The offsets of all snapshots, ascending."""
        return [_offset_of(key) for key, _ in self._items(_key(b"R", name))]

    def snapshot(self, name: str, offset: int) -> bytes | None:
        """The producers' state as of an offset; None if it is damaged."""
        key = _snapshot_key(name, offset)
        value = self._get(key)
        if value is None or not value.startswith(_CHECKED):
            return value  # of a version that wrote no checksums
        snapshot = value[len(_CHECKED) + _CRC.size :]
        checksum = value[len(_CHECKED) : len(_CHECKED) + _CRC.size]
        return snapshot if self._is_right(key, snapshot, checksum) else None

    def forget_snapshots(
        self, transaction: Any, name: str, *, keep: set[int] | None = None, above: int | None = None
    ) -> None:
        """Delete all snapshots except some, or those above an offset."""
        prefix = _key(b"R", name)
        with transaction.cursor() as cursor:
            there = cursor.set_range(prefix)
            while there and cursor.key().startswith(prefix):
                offset = _offset_of(cursor.key())
                gone = offset > above if above is not None else offset not in (keep or ())
                there = cursor.delete() if gone else cursor.next()


def _key(kind: bytes, name: str) -> bytes:
    return kind + name.encode("ascii") + b"\0"


def _page_prefix(name: str, base: int) -> bytes:
    return _key(b"P", name) + struct.pack(">q", base)


def _page_key(name: str, base: int, offset: int) -> bytes:
    delta = min(max(offset - base, 0), 2**32 - 1)
    return _page_prefix(name, base) + struct.pack(">I", delta)


def _delete_from(
    transaction: Any, prefix: bytes, start: bytes = b"", upto: bytes | None = None
) -> None:
    """Delete the keys with a prefix, from ``start`` after the prefix on, up to ``upto``."""
    with transaction.cursor() as cursor:
        there = cursor.set_range(prefix + start)
        while there and cursor.key().startswith(prefix) and (upto is None or cursor.key() <= upto):
            there = cursor.delete()


def _snapshot_key(name: str, offset: int) -> bytes:
    return _key(b"R", name) + struct.pack(">q", offset)


def _offset_of(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big", signed=True)


def _items(transaction: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    with transaction.cursor() as cursor:
        there = cursor.set_range(prefix)
        while there and cursor.key().startswith(prefix):
            yield cursor.item()
            there = cursor.next()


def _window(
    transaction: Any, name: str, base: int, offset: int
) -> tuple[list[tuple[bytes, bytes]], bool, int] | None:
    """The pages from the one that contains an offset on, whether the first of them is the segment's
    first, and the offset at which the next page begins.
    """
    prefix = _page_prefix(name, base)
    wanted = _page_key(name, base, offset)
    with transaction.cursor() as cursor:
        there = cursor.set_range(wanted)
        if not there or cursor.key() != wanted:
            there = cursor.prev() if there else cursor.last()
        if not there or not cursor.key().startswith(prefix):
            there = cursor.set_range(prefix)
        found = list(islice(cursor.iternext(), WINDOW_PAGES + 1)) if there else []
        while found and not found[-1][0].startswith(prefix):
            found.pop()  # belongs to the next segment
        if not found:
            return None
        end = NO_WINDOW
        if len(found) > WINDOW_PAGES:
            end = base + int.from_bytes(found.pop()[0][-4:], "big")
        cursor.set_key(found[0][0])
        is_first = not cursor.prev() or not cursor.key().startswith(prefix)
        return found, is_first, end
