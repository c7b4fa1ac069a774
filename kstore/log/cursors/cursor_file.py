"""The position of a cursor, in its own file that any process may write, with a lock.

    <log dir>/.cursors/<topic>-<partition>:<name>

The file has two slots for a position, and a third part. A commit overwrites the slot of the older
position, with a checksum: after a kill or a power loss the previous commit is still there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

from kstore.env import sync_data
from kstore.log.errors import CursorInUseError, NewerFormatError, storage_errors
from kstore.log.segments.segment_names import (
    CURSORS_FOLDER,
    directory_name,
    parse_directory_name,
)
from kstore.private_files import make_private_folder, open_private
from kstore.types import TopicPartition

__all__ = ["CursorFile", "Position", "cursor_files"]

PLACE_BYTES = 16384
MAX_METADATA_BYTES = 8192
"""The maximum size of a commit's metadata."""
HEAD = struct.Struct("<4sI16sQqqI")  # magic, checksum, topic id, number, offset, time, bytes
BODY = struct.Struct("<16sQqqI")
MAGIC = b"KCUR"
LAST = struct.Struct("<QI")  # after both slots: the last number that a broker took, and a process
LOOK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Position:
    """What was committed."""

    offset: int
    """The next offset to read; below 0: deleted."""
    metadata: str
    committed_ms: int
    number: int
    """The number of the commit, from 1 on."""


class CursorFile:
    """The file of one cursor. ``durable``: commits are durable when they return."""

    def __init__(
        self, directory: str, tp: TopicPartition, topic_id: bytes, name: str, *, durable: bool
    ) -> None:
        self.name = name
        self.topic_partition = tp
        self._folder = os.path.join(directory, CURSORS_FOLDER)
        file = f"{directory_name(tp)}:{quote(name, safe='')}"
        if len(file) > 255:
            raise ValueError(f"the cursor's name {name[:40]!r}... is too long for a file of {tp}")
        self._path = os.path.join(self._folder, file)
        self._topic_id = topic_id
        self._durable = durable
        self._fd = -1
        self._last: Position | None = None

    # -- the lock

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd >= 0

    def acquire(self, wait: float | None = 0.0) -> None:
        """Lock it; waits up to ``wait`` seconds (None: no limit) for the current holder. Raises
        CursorInUseError and LogStorageError.
        """
        if self._fd >= 0:
            return
        with storage_errors(f"opening the cursor {self.name!r} of {self.topic_partition}"):
            make_private_folder(self._folder)
            fd = open_private(self._path, os.O_RDWR | os.O_CREAT)
        try:
            self._lock(fd, wait)
            os.pwrite(fd, LAST.pack(self._taken(fd), os.getpid()), 2 * PLACE_BYTES)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        self._last = self._read(fd)

    def _lock(self, fd: int, wait: float | None) -> None:
        deadline = None if wait is None else time.monotonic() + wait
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if deadline is not None and time.monotonic() >= deadline:
                    _, process = self._rest(fd)
                    raise CursorInUseError(self.name, str(self.topic_partition), process) from None
                time.sleep(LOOK_SECONDS)
            else:
                return

    def release(self) -> None:
        """Release the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # -- the content

    def load(self) -> Position | None:
        """The last commit; None if there is none."""
        if self._fd >= 0:
            return self._last
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return self._read(fd)
        finally:
            os.close(fd)

    def store(self, offset: int, metadata: str, now_ms: int) -> None:
        """Commit; the caller holds the lock. Raises ValueError for too much metadata,
        LogStorageError.
        """
        text = metadata.encode()
        if len(text) > MAX_METADATA_BYTES:
            raise ValueError(
                f"cursor {self.name!r} can't commit {len(text)} bytes of metadata: "
                f"the limit is {MAX_METADATA_BYTES}"
            )
        number = 1 if self._last is None else self._last.number + 1
        body = BODY.pack(self._topic_id, number, offset, now_ms, len(text)) + text
        data = MAGIC + zlib.crc32(body).to_bytes(4, "little") + body
        with storage_errors(f"committing to the cursor {self.name!r} of {self.topic_partition}"):
            written = os.pwrite(self._fd, data, number % 2 * PLACE_BYTES)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            if self._durable:
                sync_data(self._fd)
        self._last = Position(offset, metadata, now_ms, number)

    def _read(self, fd: int) -> Position | None:
        found = [self._read_place(fd, place) for place in (0, 1)]
        there = [each for each in found if each is not None]
        return max(there, key=lambda each: each.number, default=None)

    def _read_place(self, fd: int, place: int) -> Position | None:
        data = os.pread(fd, HEAD.size + MAX_METADATA_BYTES, place * PLACE_BYTES)
        if len(data) < HEAD.size:
            return None
        magic, checksum, topic_id, number, offset, at, size = HEAD.unpack_from(data)
        if magic[:3] == MAGIC[:3] and magic != MAGIC:
            raise NewerFormatError(self._path, repr(magic), repr(MAGIC))
        if magic != MAGIC or checksum != zlib.crc32(data[8 : HEAD.size + size]):
            return None
        if topic_id != self._topic_id:
            return None  # of a log that was deleted since
        metadata = data[HEAD.size : HEAD.size + size].decode()
        return Position(offset, metadata, at, number)

    # -- what a broker took over

    def is_taken(self) -> bool:
        """Whether a broker has written the last commit to `__consumer_offsets`."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            position = self._read(fd)
            return position is None or position.number <= self._taken(fd)
        finally:
            os.close(fd)

    def note_taken(self) -> None:
        """Note that a broker has written it."""
        position = self.load()
        if position is not None:
            with storage_errors(f"writing to {self._path}"):
                fd = open_private(self._path, os.O_RDWR)
                try:
                    os.pwrite(fd, LAST.pack(position.number, self._rest(fd)[1]), 2 * PLACE_BYTES)
                finally:
                    os.close(fd)

    def _taken(self, fd: int) -> int:
        return self._rest(fd)[0]

    def _rest(self, fd: int) -> tuple[int, int]:
        data = os.pread(fd, LAST.size, 2 * PLACE_BYTES)
        return LAST.unpack(data) if len(data) == LAST.size else (0, 0)


def cursor_files(directory: str) -> Iterator[tuple[TopicPartition, str]]:
    """The partition and the name of each cursor in a log dir."""
    try:
        names = os.listdir(os.path.join(directory, CURSORS_FOLDER))
    except FileNotFoundError:
        return
    for file in sorted(names):
        folder, _, name = file.partition(":")
        tp = parse_directory_name(folder)
        if tp is not None and name:
            yield tp, unquote(name)
