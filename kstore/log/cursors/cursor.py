"""Named cursors: durable positions in a log. A cursor continues at its last committed offset.

A cursor commits to a file of its own. Any process that has the log open can use it, but only one
object at a time can hold it. If ``kstore serve`` serves the log dir, cursors are consumer groups
there, and the offsets of consumer groups are cursors here.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from kstore.items import check_name
from kstore.log.cursors.committed_offsets import CommittedOffsets
from kstore.log.errors import OffsetOutOfRangeError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.record import Record, RecordSet

__all__ = ["Cursor"]

_READ_BYTES = 1 << 20

_open_cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()


class CursorLog(Protocol):
    """The log that a cursor reads, or commits to; a ``Log``."""

    topic_partition: TopicPartition

    @property
    def log_start_offset(self) -> int:
        """The log start offset."""

    @property
    def log_end_offset(self) -> int:
        """The log end offset."""

    @property
    def high_watermark(self) -> int:
        """The end of what can be read."""

    def read(
        self, offset: int, max_bytes: int = ..., *, isolation: str = "read_uncommitted"
    ) -> RecordSet:
        """The records from ``offset`` on."""

    def wait(
        self, offset: int, timeout: float | None = None, *, isolation: str = "read_uncommitted"
    ) -> bool:
        """Wait until a record at or after ``offset`` can be read."""

    def refresh(self) -> bool:
        """Look for records that another process has written."""


class Cursor:
    """A named, durable position in a log. Created by ``Log.cursor``. Use a cursor in one thread at
    a time.

    It starts at the offset that was last committed under its name, or at the log start offset. From
    its first ``poll``, ``commit`` or ``seek`` until ``close`` it holds the name, across all
    processes. Another cursor with that name waits up to ``wait`` seconds (None: without limit),
    then raises CursorInUseError. ``position``, ``committed``, ``metadata`` and ``lag`` can be read
    without holding the name.
    """

    def __init__(
        self,
        log: CursorLog,
        offsets: CommittedOffsets,
        name: str,
        *,
        isolation: str = "read_uncommitted",
        wait: float | None = 0.0,
    ) -> None:
        check_name("the cursor", name)
        if not name:
            raise ValueError(
                "the cursor's name is empty: use a name, such as a consumer group's id"
            )
        self.name = name
        self._log = log
        self._offsets = offsets
        self._file = offsets.file(name, log.topic_partition)
        self._isolation = isolation
        self._wait = wait
        self._records: Iterator[Record] = iter(())
        self._after_records = -1
        self._position = -1
        _open_cursors.add(self)

    def _begin(self) -> None:
        """Take the name; commits of others until now count."""
        if not self._file.is_held:
            self._file.acquire(self._wait)
            self._set_position(self._first_position())

    def _first_position(self) -> int:
        committed = self.committed
        return self._log.log_start_offset if committed is None else committed

    @property
    def position(self) -> int:
        """The offset of the next record that ``poll`` returns."""
        return self._position if self._file.is_held else self._first_position()

    @property
    def committed(self) -> int | None:
        """The offset last committed under this name, which is the next one to read. None if there
        is no commit.
        """
        value = self._offsets.committed(self._file)
        return None if value is None else value.offset

    @property
    def metadata(self) -> str:
        """The text that was committed with the offset; "" if there was none."""
        value = self._offsets.committed(self._file)
        return "" if value is None else value.metadata

    @property
    def lag(self) -> int:
        """The number of offsets from the position to the end of what can be read."""
        return max(0, self._readable_end() - self.position)

    def poll(self, max_records: int = 500, timeout: float | None = 0.0) -> list[Record]:
        """Return the next records, at most ``max_records``. If there are none, wait up to
        ``timeout`` seconds for the first (None: without limit). Returns an empty list if none
        arrive in time.

        Raises OffsetOutOfRangeError if the record at the position was deleted, or if the log was
        truncated before it: call ``seek`` with an offset that exists. Raises CursorInUseError if
        another cursor holds the name, and CorruptLogError if the next batch is damaged.
        """
        self._begin()
        found = self._take(max_records)
        isolation = self._isolation
        if (
            not found
            and timeout != 0.0
            and self._log.wait(self._position, timeout, isolation=isolation)
        ):
            found = self._take(max_records)
        return found

    def _take(self, max_records: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < max_records:
            record = next(self._records, None)
            if record is not None:
                found.append(record)
                self._position = record.offset + 1
            elif not self._fetch():
                break
        return found

    def _fetch(self) -> bool:
        """Read the next piece; returns False at the end of the log."""
        self._position = max(self._position, self._after_records)
        records = self._log.read(self._position, _READ_BYTES, isolation=self._isolation)
        if records.next_offset is None:
            self._check_position()
            return False
        self._records = iter(records)
        self._after_records = records.next_offset
        return True

    def _check_position(self) -> None:
        """A position after the end would skip the next records that are appended."""
        self._check_readable(self._position)

    def _check_readable(self, offset: int) -> None:
        log, end = self._log, self._readable_end()
        if not log.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(str(log.topic_partition), offset, log.log_start_offset, end)

    def _readable_end(self) -> int:
        """The end of what can be read: records beyond it may still be replaced."""
        self._log.refresh()
        return self._log.high_watermark

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records from the position to the current end of the log."""
        self._begin()
        while records := self._take(1):
            yield records[0]

    def commit(self, offset: int | None = None, metadata: str = "") -> int:
        """Commit ``offset`` (default: the position): store it as the next offset to read, with a
        text of yours in ``metadata``. Returns the offset.

        Raises ValueError for an offset that is negative or beyond the end of what can be read,
        CursorInUseError, and LogStorageError.
        """
        self._begin()
        offset = self._position if offset is None else offset
        end = self._readable_end()
        if not 0 <= offset <= end:
            raise ValueError(
                f"cursor {self.name!r} can't commit offset {offset}: {self._log.topic_partition} "
                f"can be read up to {end}; commit the offset after the last processed record"
            )
        self._file.store(offset, metadata, self._offsets.now_ms())
        return offset

    def delete(self) -> None:
        """Delete the committed offset. The position does not change."""
        self._begin()
        self._file.store(-1, "", self._offsets.now_ms())

    def seek(self, offset: int) -> None:
        """Move the position to ``offset``. The committed offset does not change. Raises
        OffsetOutOfRangeError and CursorInUseError.
        """
        self._check_readable(offset)
        self._begin()
        self._set_position(offset)

    def _set_position(self, offset: int) -> None:
        self._records = iter(())
        self._after_records = -1
        self._position = offset

    def close(self) -> None:
        """Release the name. A later ``poll`` takes it again and continues at the committed
        offset.
        """
        self._file.release()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.release()

    def __repr__(self) -> str:
        return f"Cursor({self.name!r} of {self._log.topic_partition} at {self.position})"


def _after_fork() -> None:
    """In a child process: the names belong to the parent."""
    for cursor in tuple(_open_cursors):
        cursor.close()


os.register_at_fork(after_in_child=_after_fork)
