"""A log as its readers see it: offsets, records by offset or time, and the wait for more."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kstore._fast.log.log_core import LogCore
from kstore._fast.log.log_segment import LogSegment
from kstore.log import timestamps
from kstore.log.local.local_log import LocalLog
from kstore.log.local.recovery_report import Loss, RecoveryReport
from kstore.log.recovery.opening import refresh
from kstore.log.settings import LogConfig
from kstore.log.tail import Tail
from kstore.record import Record, RecordSet, decode
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ReadableLog"]

_READ_BYTES = 1 << 20
_ITERATE_BYTES = 128 * 1024  # what fits in a processor's cache


class ReadableLog:
    """What can be asked of a log without changing it; ``Log`` is one."""

    def __init__(self, local: LocalLog) -> None:
        self.local = local
        """What the parts of kstore.log see of it; not for its users."""
        self.core: LogCore = local.core
        self.topic_partition: TopicPartition = local.topic_partition
        self.path = local.path
        self.name = local.name
        self.topic_id: uuid.UUID | None = local.topic_id
        self.read_only = local.read_only
        self._tail: Tail | None = None

    # -- what it is

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.local.closed

    @property
    def config(self) -> LogConfig:
        """The settings that it acts by."""
        return self.local.config

    @property
    def recovery(self) -> RecoveryReport:
        """What opening it did and found."""
        return self.local.recovery

    @property
    def lost(self) -> Sequence[Loss]:
        """What was lost and is not back yet."""
        return tuple(self.local.lost)

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.core.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets. A read-only log looks for what came meanwhile."""
        if self.local.read_only:
            self.refresh()
        return self.core.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Below it every record is on all in-sync replicas; without replicas, the log's end. With
        flush="always" it stays below what is not on the disk yet.
        """
        return self.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open: how far read_committed reads."""
        return self.core.last_stable_offset

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 for an empty log."""
        return self.core.epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.local.size_bytes

    @property
    def segments(self) -> Sequence[LogSegment]:
        """The segments, ascending by base offset; the last one is appended to."""
        return tuple(self.core.segments)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets {self.core.log_start_offset} to "
            f"{self.core.log_end_offset}, {len(self.core.segments)} segments)"
        )

    def refresh(self) -> bool:
        """Look for what another process has written; True if there is something new."""
        return refresh(self.local) if self.read_only and not self.local.closed else False

    # -- read

    def _limit(self, isolation: str) -> int:
        if isolation == "read_uncommitted":
            return self.core.high_watermark
        if isolation == "read_committed":
            return self.core.last_stable_offset
        raise ValueError(f"isolation is {isolation!r}: use read_uncommitted or read_committed")

    def _read(self, offset: int, max_bytes: int, isolation: str) -> tuple[bytes, int]:
        local = self.local
        if local.closed:
            raise local.closed_error()
        if local.read_only and offset >= self.core.high_watermark:
            self.refresh()
        try:
            return self.core.read(offset, self._limit(isolation), max_bytes)
        except FileNotFoundError:
            if not local.read_only:
                raise
        self.refresh()  # the writer has deleted the segment meanwhile
        return self.core.read(offset, self._limit(isolation), max_bytes)

    def read_batches(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> bytes:
        """The whole batches from the one that holds ``offset`` on, of one segment: at most
        ``max_bytes``, but at least one batch; empty at the log's end. Checksums are checked.

        Raises OffsetOutOfRangeError, and CorruptLogError where the first batch is damaged.
        """
        return self._read(offset, max_bytes, isolation)[0]

    def read(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> RecordSet:
        """The records from ``offset`` on, decoded when touched; see ``read_batches``."""
        data, next_offset = self._read(offset, max_bytes, isolation)
        aborted = None
        if isolation == "read_committed":
            aborted = self.aborted_transactions(offset, next_offset)
        return decode(data, verify=False, start_offset=offset, aborted=aborted)

    def read_arrow(
        self, offset: int, max_bytes: int = _READ_BYTES, *, isolation: str = "read_uncommitted"
    ) -> pyarrow.RecordBatch:
        """The records from ``offset`` on as columns; needs pyarrow."""
        from kstore.record.arrow import to_arrow

        data, next_offset = self._read(offset, max_bytes, isolation)
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
        """The records of [start, end), by default all that are there now."""
        offset = self.log_start_offset if start is None else start
        if self.local.read_only:
            self.refresh()
        stop = self._limit(isolation)
        if end is not None:
            stop = min(stop, end)
        while offset < stop:
            data, next_offset = self._read(offset, _ITERATE_BYTES, isolation)
            aborted = None
            if isolation == "read_committed":
                aborted = self.aborted_transactions(offset, next_offset)
            yield from decode(
                data, verify=False, start_offset=offset, end_offset=stop, aborted=aborted
            )
            offset = next_offset

    def aborted_transactions(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that overlap [offset, upper)."""
        return self.core.producers.aborted_between(offset, upper)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and its end offset; (-1, -1) if unknown."""
        return self.core.epochs.end_offset_for(epoch, self.core.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time in ms, or None."""
        return timestamps.offset_for_timestamp(self.local, timestamp_ms)

    def largest_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None without any."""
        return timestamps.largest_timestamp(self.local)

    def search_timestamp(
        self, timestamp_ms: int, from_offset: int = 0
    ) -> tuple[int, int] | timestamps.Look | None:
        """As ``offset_for_timestamp``, from an offset on; or a large batch that is to be looked
        into first, in any thread.
        """
        return timestamps.search(self.local, timestamp_ms, from_offset)

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of the records that may be seen; below 0 without any."""
        return timestamps.largest_ms(self.local)

    # -- follow

    @property
    def tail(self) -> Tail:
        """Who waits for this log to grow."""
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

        Works on a log that another process writes, too.
        """
        return self.tail.wait(offset, timeout, committed=isolation == "read_committed")

    def follow(
        self,
        offset: int | None = None,
        timeout: float | None = None,
        *,
        isolation: str = "read_uncommitted",
    ) -> Iterator[Record]:
        """The records from ``offset`` on (default: the log start), and those to come; ends when
        none has come for ``timeout`` seconds.
        """
        position = self.log_start_offset if offset is None else offset
        while self.wait(position, timeout, isolation=isolation):
            records = self.read(position, _ITERATE_BYTES, isolation=isolation)
            yield from records
            position = records.next_offset or position
