"""The reading half of a log: offsets, records by offset or time, and waiting for new records."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kstore._fast.log.log_core import LogCore
from kstore._fast.log.log_segment import LogSegment
from kstore.items import LARGEST, check_int
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
    """What can be read from a log. ``Log`` inherits all of it."""

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
        """True after ``close``."""
        return self.local.closed

    @property
    def config(self) -> LogConfig:
        """The log's settings."""
        return self.local.config

    @property
    def recovery(self) -> RecoveryReport:
        """What was scanned, cut off and found damaged when the log was opened."""
        return self.local.recovery

    @property
    def lost(self) -> Sequence[Loss]:
        """The offsets that were lost and have not been restored."""
        return tuple(self.local.lost)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        if self.core.page is not None:
            self.refresh()
        return self.core.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets. If other processes may write, this looks for their
        records first.
        """
        self.refresh()
        return self.core.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The end of what read_uncommitted readers see: all in-sync replicas have the records below
        it. Without replicas it is the log end offset. With flush="always" only records on disk are
        below it.
        """
        if self.core.page is not None:
            self.refresh()
        return self.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed readers see: no transaction is open below it."""
        return self.core.last_stable_offset

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if the log is empty."""
        return self.core.epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        """The size of all segments, in bytes."""
        if self.core.page is not None:
            self.refresh()
        return self.local.size_bytes

    @property
    def segments(self) -> Sequence[LogSegment]:
        """The segments in the order of their base offsets. The last one is the active segment."""
        if self.core.page is not None:
            self.refresh()
        return tuple(self.core.segments)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets {self.core.log_start_offset} to "
            f"{self.core.log_end_offset}, {len(self.core.segments)} segments)"
        )

    def refresh(self) -> bool:
        """Look for records that another process has written. Returns True if there are any."""
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
        """Like ``read_batches``. Also returns the offset after the returned batches."""
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
        """Read encoded batches, starting with the batch that contains ``offset``. Returns whole
        batches of one segment: at most ``max_bytes``, but at least one batch. Returns ``b""`` at
        the end of the log. Checksums are verified.

        Raises OffsetOutOfRangeError if ``offset`` is below the log start offset or above the end,
        CorruptLogError if the first batch is damaged, and LogClosedError.
        """
        return self.read_slice(offset, max_bytes, isolation)[0]

    def read(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> RecordSet:
        """Read records from ``offset`` on: about ``max_bytes`` of them, but at least one batch. The
        result is empty at the end of the log. To continue, read at its ``next_offset``. Records are
        decoded when they are accessed. Errors are as for ``read_batches``.
        """
        from kstore.record import decode

        data, next_offset = self.read_slice(offset, max_bytes, isolation)
        aborted = None
        if isolation == "read_committed":
            aborted = self.aborted_transactions(offset, next_offset)
        return decode(data, verify=False, start_offset=offset, aborted=aborted)

    def read_arrow(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> pyarrow.RecordBatch:
        """Read records from ``offset`` on as an Arrow record batch. Needs pyarrow. Limits and
        errors are as for ``read``.
        """
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
        """Iterate over the records from ``start`` to before ``end``. By default these are all
        records that exist now. Records that are appended later are not included: see ``follow``.
        Errors are as for ``read_batches``.
        """
        from kstore.record import decode

        for name, given in (("start", start), ("end", end)):
            if given is not None:
                check_int(name, given, -LARGEST, LARGEST)
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
        """The offset after the last record below ``end`` that a read_committed reader receives. A
        reader at this position has read all of them. 0 if there are none. None if unknown, because
        a transaction is open below ``end`` or followers do not have all records yet.
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
        """The aborted transactions with records in [offset, upper), as (producer id, first offset)
        pairs.
        """
        return self.core.producers.aborted_between(offset, upper)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch that is not above ``epoch``, and its end offset; (-1, -1) if
        unknown.
        """
        return self.core.epochs.end_offset_for(epoch, self.core.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record whose timestamp is ``timestamp_ms`` or later, as (offset, timestamp in
        ms). None if there is none.
        """
        return self._beside_writers(
            lambda: timestamps.offset_for_timestamp(self.local, timestamp_ms)
        )

    def largest_timestamp(self) -> tuple[int, int] | None:
        """The first record with the largest timestamp, as (offset, timestamp in ms). None if the
        log is empty.
        """
        return timestamps.largest_timestamp(self.local)

    def search_timestamp(
        self, timestamp_ms: int, from_offset: int = 0
    ) -> tuple[int, int] | timestamps.Look | None:
        """Like ``offset_for_timestamp``, starting at ``from_offset``. If a large batch must be
        searched first, returns a ``Look`` whose ``find`` does that, in any thread.
        """
        return timestamps.search(self.local, timestamp_ms, from_offset)

    def search_steps(self, timestamp_ms: int, from_offset: int = 0) -> timestamps.Search:
        """Like `search_timestamp`, as a generator of steps, for callers that must not wait for a
        disk.
        """
        return timestamps.search_steps(self.local, timestamp_ms, from_offset)

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of the records that can be read, in ms; below 0 if the log is
        empty.
        """
        return timestamps.largest_ms(self.local)

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy this log, as it is now, with its cursors and queues to a new log dir. Other
        processes may write to the log in the meantime. Full segments are shared with the copy (by
        reflink or hard link), so copying is quick.

        Raises SnapshotError if ``path`` is a folder that is not empty, and LogStorageError.
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
        """Wait until a record at or after ``offset`` can be read. Returns False if there is none
        after ``timeout`` seconds (None: wait without limit). Works for logs that another process
        writes, too.

        Raises OffsetOutOfRangeError if ``offset`` is below the log start offset or above the log
        end offset, and LogClosedError if the log is closed in the meantime.
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
        """Like ``wait``, for callers that also wait for a file in the log's folder that others
        write. ``due`` returns how many seconds to wait. It is called again when a file in the
        folder changes.
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
        """Iterate over the records from ``offset`` on (default: the log start offset), and over new
        ones as they arrive. Ends when none has arrived for ``timeout`` seconds (None: never).
        """
        position = self.log_start_offset if offset is None else offset
        while self.wait(position, timeout, isolation=isolation):
            records = self.read(position, _ITERATE_BYTES, isolation=isolation)
            yield from records
            position = records.next_offset or position

    async def tail(
        self, offset: int | None = None, *, isolation: str = "read_uncommitted"
    ) -> AsyncIterator[Record]:
        """Iterate over records with asyncio: those from ``offset`` on (default: the end of the log,
        so only new ones), and new ones as they arrive. It never ends. A thread of the loop's
        default executor does the waiting.
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
