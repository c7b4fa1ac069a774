"""The decided appends of a transaction, until they are done: one entry, in a file of the log dir.
It is written completely before the first log changes: after a crash there is either no whole entry,
and nothing was appended, or everything that is missing can be appended from it.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from kstore._fast.log.segment_file import SegmentFile
from kstore.log.errors import NewerFormatError
from kstore.record import batches

if TYPE_CHECKING:
    from kstore.env import FileSystem
    from kstore.log.local.local_log import LocalLog

__all__ = ["JOURNAL_NAME", "Journal", "Part", "pending_parts", "redo"]

JOURNAL_NAME = ".transaction"
_MAGIC = b"kstrtxn1"
_HEAD = struct.Struct("<8sII")
"""The mark of an entry, its checksum and its size."""
_PART = struct.Struct("<I16sI")
"""The sizes of the folder's name and of the batches, and the topic id between them."""
_NO_TOPIC_ID = bytes(16)


class Members(Protocol):
    """The processes that share a log dir; a ``Membership``."""

    def deciding(self, *, wait: bool) -> contextlib.AbstractContextManager[bool]:
        """In this context no other process decides a transaction; False: another one is doing
        so.
        """


@dataclass(frozen=True)
class Part:
    """The appends of a transaction to one log: batches with their offsets."""

    name: str
    """The log's folder."""
    topic_id: bytes
    batches: bytes


def _pack(parts: Sequence[Part]) -> bytes:
    body = bytearray()
    for part in parts:
        name = part.name.encode()
        body += _PART.pack(len(name), part.topic_id, len(part.batches)) + name + part.batches
    return _HEAD.pack(_MAGIC, crc32(body), len(body)) + bytes(body)


def _unpack(data: bytes) -> list[Part]:
    """The parts of an entry; none if it is incomplete."""
    if len(data) < _HEAD.size:
        return []
    mark, checksum, size = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size : _HEAD.size + size]
    if mark != _MAGIC or len(body) < size or crc32(body) != checksum:
        return []
    parts, at = [], 0
    while at < size:
        name_size, topic_id, batches_size = _PART.unpack_from(body, at)
        at += _PART.size
        middle, end = at + name_size, at + name_size + batches_size
        parts.append(Part(str(body[at:middle], "utf-8"), topic_id, bytes(body[middle:end])))
        at = end
    return parts


def pending_parts(fs: FileSystem, directory: str) -> list[Part]:
    """What was decided and not marked as done."""
    try:
        path = os.path.join(directory, JOURNAL_NAME)
        data = fs.read_file(path)
        mark = data[: len(_MAGIC)]
        if mark[:-1] == _MAGIC[:-1] and mark != _MAGIC:
            raise NewerFormatError(path, repr(mark), repr(_MAGIC))
        return _unpack(data)
    except FileNotFoundError:
        return []


def redo(log: LocalLog, parts: Sequence[Part]) -> None:
    """Append what the log does not have of its part. The log's lock is held."""
    core = log.core
    topic_id = log.topic_id.bytes if log.topic_id else _NO_TOPIC_ID
    for part in parts:
        if part.name != log.name or part.topic_id != topic_id:
            continue
        for batch in batches(part.batches):
            if batch.base_offset >= core.log_end_offset:
                core.append_buffer(bytearray(part.batches[batch.position :]), 0, "replica")
                break


class Journal:
    """The journal of a log dir. One transaction at a time holds it, of all processes."""

    def __init__(self, fs: FileSystem, directory: str, members: Members | None) -> None:
        self._fs = fs
        self._directory = directory
        self._members = members
        self._mutex = threading.Lock()
        self._file: SegmentFile | None = None

    @contextlib.contextmanager
    def mine(self, *, wait: bool = True) -> Iterator[bool]:
        """In this context no other transaction is decided; False if another one is being decided,
        and the caller would not wait.
        """
        if not self._mutex.acquire(blocking=wait):
            yield False
            return
        try:
            if self._members is None:
                yield True
                return
            with self._members.deciding(wait=wait) as got:
                yield got
        finally:
            self._mutex.release()

    def pending(self) -> list[Part]:
        """What was decided and not marked as done."""
        return pending_parts(self._fs, self._directory)

    def write(self, parts: Sequence[Part], *, durable: bool) -> None:
        """Decide. After an OSError it may or may not be decided: see `take_back`."""
        file = self._open()
        entry = _pack(parts)
        file.refresh()
        over = min(file.size_bytes, len(entry))
        file.overwrite(entry[:over], 0)
        file.append(entry[over:])
        if durable:
            file.sync()

    def take_back(self, *, durable: bool) -> bool:
        """After a write that failed: whether it is certain that nothing is decided."""
        try:
            if self.pending():
                self.clear()
                if durable:
                    self._open().sync()
        except OSError:
            return False
        return True

    def clear(self) -> None:
        """Everything is done."""
        self._open().overwrite(bytes(_HEAD.size), 0)

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """In this context no transaction is decided, and it is durable that all are done: offsets
        will be assigned again, and a power loss must not bring back the records that had them.
        """
        with self.mine():
            if os.path.exists(os.path.join(self._directory, JOURNAL_NAME)):
                self._open().sync()
            yield

    def _open(self) -> SegmentFile:
        if self._file is None:
            path = os.path.join(self._directory, JOURNAL_NAME)
            is_new = not os.path.exists(path)
            self._file = self._fs.open_segment(SegmentFile, path, writable=True, create=True)
            self._file.share()
            if is_new:
                os.chmod(path, 0o600)
                self._fs.fsync_dir(self._directory)
        return self._file

    def close(self) -> None:
        """Close its file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
