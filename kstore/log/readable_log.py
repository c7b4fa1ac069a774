"""A log for its readers: offsets, records by offset or time, and waiting for more."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kstore._fast.log.log_core import LogCore
from kstore._fast.log.log_segment import LogSegment
from kstore.log import timestamps
from kstore.log.errors import CorruptLogError
from kstore.log.local.local_log import LocalLog
from kstore.log.local.recovery_report import Loss, RecoveryReport
from kstore.log.recovery.opening import TRIES, refresh
from kstore.log.settings import LogConfig
from kstore.log.tail import Tail
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore.record import Record, RecordSet

__all__ = ["ReadableLog"]

T = TypeVar("T")
_READ_BYTES = 1 << 20
LOOK_SECONDS = 0.25  # how long a thread continues to wait after its coroutine was cancelled
_ITERATE_BYTES = 128 * 1024  # fits in a CPU cache
VISIBLE_STEP = 16


class ReadableLog:
    """Reads of a log; ``Log`` inherits this."""

    def __init__(self, local: LocalLog) -> None:
        self.local = local
        """The internal state for the parts of kstore.log; not for users."""
        self.core: LogCore = local.core
        self.topic_partition: TopicPartition = local.topic_partition
        self.path = local.path
        self.name = local.name
        self.topic_id: uuid.UUID | None = local.topic_id
        self.read_only = local.read_only
        self._is_shared = local.read_only or local.directory.shared
        self._tail: Tail | None = None

    # -- state

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.local.closed

    @property
    def config(self) -> LogConfig:
        """The settings in use."""
        return self.local.config

    @property
    def recovery(self) -> RecoveryReport:
        """What opening the log did and found."""
        return self.local.recovery

    @property
    def lost(self) -> Sequence[Loss]:
        """What was lost and is not restored yet."""
        return tuple(self.local.lost)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        if self.core.page is not None:
            self.refresh()
        return self.core.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets. A read-only log looks for new records first."""
        self.refresh()
        return self.core.log_end_offset

    @property
    def high_watermark(self) -> int:
        """All replicas in sync have the records below it; without replicas, it is the log end
        offset. With flush="always" it does not pass records that are not on disk yet.
        """
        if self.core.page is not None:
            self.refresh()
        return self.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """No transaction is open below it: read_committed reads up to here."""
        return self.core.last_stable_offset

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 for an empty log."""
        return self.core.epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        if self.core.page is not None:
            self.refresh()
        return self.local.size_bytes

    @property
    def segments(self) -> Sequence[LogSegment]:
        """The segments, ascending by base offset. Appends go to the last one."""
        if self.core.page is not None:
            self.refresh()
        return tuple(self.core.segments)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets {self.core.log_start_offset} to "
            f"{self.core.log_end_offset}, {len(self.core.segments)} segments)"
        )

    def refresh(self) -> bool:
        """Look for records that another process has written; True if there are new ones."""
        core = self.core
        if core.page is not None and not self.local.closed:
            before = core.log_end_offset
            core.look()
            return core.log_end_offset != before
        return refresh(self.local) if self.read_only and not self.local.closed else False

    # -- read

    def _limit(self, isolation: str) -> int:
        if isolation == "read_uncommitted":
            return self.core.high_watermark
        if isolation == "read_committed":
            return self.core.last_stable_offset
        raise ValueError(f"isolation is {isolation!r}: use read_uncommitted or read_committed")

    def read_slice(self, offset: int, max_bytes: int, isolation: str) -> tuple[bytes, int]:
        """As ``read_batches``, together with the offset after the returned batches."""
        local = self.local
        if local.closed:
            raise local.closed_error()
        if self._is_shared and offset >= self.core.high_watermark:
            self.refresh()
        if not self._is_shared:
            return self.core.read(offset, self._limit(isolation), max_bytes)
        return self._beside_writers(
            lambda: self.core.read(offset, self._limit(isolation), max_bytes)
        )

    def _beside_writers(self, look: Callable[[], T]) -> T:
        """What ``look`` finds. If another process has deleted or compacted a segment, it looks
        again.
        """
        for _ in range(TRIES if self._is_shared else 0):
            known = self.core.segments
            try:
                return look()
            except (FileNotFoundError, CorruptLogError):
                self.refresh()
                if self.core.segments is known:
                    break
        return look()

    def read_batches(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> bytes:
        """Whole batches from one segment, beginning with the one that contains ``offset``: at most
        ``max_bytes``, but at least one batch; empty at the end of the log. Checksums are checked.

        Raises OffsetOutOfRangeError, and CorruptLogError if the first batch is damaged.
        """
        return self.read_slice(offset, max_bytes, isolation)[0]

    def read(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> RecordSet:
        """The records from ``offset`` on, decoded on access; see ``read_batches``."""
        from kstore.record import decode

        data, next_offset = self.read_slice(offset, max_bytes, isolation)
        aborted = None
        if isolation == "read_committed":
            aborted = self.aborted_transactions(offset, next_offset)
        return decode(data, verify=False, start_offset=offset, aborted=aborted)

    def read_arrow(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> pyarrow.RecordBatch:
        """The records from ``offset`` on as columns; needs pyarrow."""
        from kstore.record.arrow import to_arrow

        data, next_offset = self.read_slice(offset, max_bytes, isolation)
        aborted = None
        if isolation == "read_committed":
            aborted = self.aborted_transactions(offset, next_offset)
        return to_arrow(data, verify=False, start_offset=offset, aborted=aborted)

    def records(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        isolation: str = "read_uncommitted",
    ) -> Iterator[Record]:
        """The records of [start, end); by default all records that exist now."""
        from kstore.record import decode

        offset = self.log_start_offset if start is None else start
        if self._is_shared:
            self.refresh()
        stop = self._limit(isolation)
        if end is not None:
            stop = min(stop, end)
        while offset < stop:
            data, next_offset = self.read_slice(offset, _ITERATE_BYTES, isolation)
            aborted = None
            if isolation == "read_committed":
                aborted = self.aborted_transactions(offset, next_offset)
            yield from decode(
                data, verify=False, start_offset=offset, end_offset=stop, aborted=aborted
            )
            offset = next_offset

    def visible_end(self, end: int) -> int | None:
        """The offset after the last record below ``end`` that a read_committed reader gets: a
        reader at this position has read all of them. 0: none is left. None: unknown, because a
        transaction is open below it, or followers do not have all records.
        """
        if self.last_stable_offset < end:
            return None
        first, step = self.log_start_offset, 1
        while True:
            start, last = max(end - step, first), -1
            for record in self.records(start, end, isolation="read_committed"):
                last = record.offset
            if last >= 0 or start <= first:
                return last + 1
            step *= VISIBLE_STEP

    def aborted_transactions(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that overlap [offset, upper)."""
        return self.core.producers.aborted_between(offset, upper)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and its end offset; (-1, -1) if unknown."""
        return self.core.epochs.end_offset_for(epoch, self.core.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time in ms, or None."""
        return self._beside_writers(
            lambda: timestamps.offset_for_timestamp(self.local, timestamp_ms)
        )

    def largest_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None for an empty
        log.
        """
        return timestamps.largest_timestamp(self.local)

    def search_timestamp(
        self, timestamp_ms: int, from_offset: int = 0
    ) -> tuple[int, int] | timestamps.Look | None:
        """As ``offset_for_timestamp``, from an offset on; or a large batch that has to be searched
        first, in any thread.
        """
        return timestamps.search(self.local, timestamp_ms, from_offset)

    def search_steps(self, timestamp_ms: int, from_offset: int = 0) -> timestamps.Search:
        """`search_timestamp` for callers that must not wait for a disk: its steps are taken one by
        one.
        """
        return timestamps.search_steps(self.local, timestamp_ms, from_offset)

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of the records that can be read; below 0 for an empty log."""
        return timestamps.largest_ms(self.local)

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy this log, as it is now, with its cursors and queues, to a new log dir. Other
        processes may write to the log in the meantime. Full segments are shared by reflink or hard
        link, so the copy is quick.

        Raises SnapshotError if the folder is not empty, and LogStorageError.
        """
        from kstore.log.snapshot import take_snapshot

        take_snapshot([self], os.path.dirname(self.path), os.fspath(path))

    # -- follow

    @property
    def _waiters(self) -> Tail:
        if self._tail is None:
            self._tail = Tail(self.local, self.refresh)
            self.local.waiters = self._tail
        return self._tail

    def wait(
        self,
        offset: int,
        timeout: float | None = None,
        *,
        isolation: str = "read_uncommitted",
    ) -> bool:
        """Wait until a record at or after ``offset`` can be read; False after ``timeout`` seconds.

        Also works on a log that another process writes.
        """
        return self._waiters.wait(offset, timeout, committed=isolation == "read_committed")

    def wait_beside(
        self,
        offset: int,
        timeout: float,
        due: Callable[[], float],
        *,
        isolation: str = "read_uncommitted",
    ) -> bool:
        """As ``wait``, for callers that also wait for a file in the log's folder that others write:
        ``due`` returns the number of seconds to wait, and is called again when a file there
        changes.
        """
        committed = isolation == "read_committed"
        return self._waiters.wait_beside(offset, timeout, due, committed=committed)

    def follow(
        self,
        offset: int | None = None,
        timeout: float | None = None,
        *,
        isolation: str = "read_uncommitted",
    ) -> Iterator[Record]:
        """The records from ``offset`` on (default: the log start offset), and new ones as they
        arrive; ends when none has arrived for ``timeout`` seconds.
        """
        position = self.log_start_offset if offset is None else offset
        while self.wait(position, timeout, isolation=isolation):
            records = self.read(position, _ITERATE_BYTES, isolation=isolation)
            yield from records
            position = records.next_offset or position

    async def tail(
        self, offset: int | None = None, *, isolation: str = "read_uncommitted"
    ) -> AsyncIterator[Record]:
        """For asyncio: the records from ``offset`` on (default: the log end offset), and new ones
        as they arrive, without an end. The wait is in a thread of the loop's default executor.
        """
        import asyncio

        self.refresh()
        position = self._limit(isolation) if offset is None else offset
        loop = asyncio.get_running_loop()
        while True:
            if not self.wait(position, 0, isolation=isolation):
                wait = partial(self.wait, position, LOOK_SECONDS, isolation=isolation)
                if not await loop.run_in_executor(None, wait):
                    continue
            records = self.read(position, _ITERATE_BYTES, isolation=isolation)
            for record in records:
                yield record
            position = records.next_offset or position
