"""One topic-partition's log, as its users see it: append, read, truncate, delete, flush. What runs
per batch is the LogCore's; which segments are removed when is retention's and the cleaner's.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from typing_extensions import Buffer

from kstore._fast.log.log_core import AppendInfo, LogCore
from kstore._fast.log.log_segment import LogSegment
from kstore._fast.log.sync_group import SyncGroup
from kstore.errors.codes import ErrorCode
from kstore.log import errors, timestamps
from kstore.log.local import durability
from kstore.log.recovery import segment_index
from kstore.log.recovery.recovery import Loss, RecoveryReport
from kstore.log.retention import retention
from kstore.log.segments.segment_names import SegmentOpener, new_segment
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.log.tail import Tail
from kstore.record import Record, RecordSet, decode
from kstore.record.compression import compression_for
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore.log.cursor import Cursor
    from kstore.log.log_dir import LogDir
    from kstore.log.retention.cleaner import CleaningReport

__all__ = ["Log"]

_READ_BYTES = 1 << 20
_CURRENT_EPOCH = -1  # of the newest batch; 0 in an empty log
_ITERATE_BYTES = 128 * 1024  # what fits in a processor's cache


class Log:
    """A durable log of records. Made by ``LogDir.log`` or ``kstore.open_log``; thread-safe."""

    def __init__(
        self,
        log_dir: LogDir,
        topic_partition: TopicPartition,
        path: str,
        config: LogConfig,
        topic_id: uuid.UUID | None,
    ) -> None:
        self.log_dir = log_dir
        self.topic_partition = topic_partition
        self.path = path
        self.topic_id = topic_id
        self.name = os.path.basename(path)
        self.env = log_dir.env
        self.recovery = RecoveryReport()
        self.read_only = log_dir.read_only
        self.closed = False
        self._owns_dir = False
        self.unsynced_names = True
        # For checkpoint.py: up to where the disk has everything; what a checkpoint has to bring or
        # forget; how often the index of what is written already was taken back.
        self.durable = (0, 0, 0)
        self.durable_timestamp = -1
        """With flush="always": the largest timestamp of what is on the disk."""
        self.pending_snapshots: dict[int, bytes] = {}
        self.pending_forgotten: list[int] = []
        self.index_generation = 0
        self.changes = 0
        self.cleaned_offset = -1
        # Before this offset a replica has lost records that were in its log; 0: none.
        self.lost_until = 0
        self.lost: list[Loss] = []
        """What was lost and is not back yet; refill.lost_parts keeps it."""
        self.deleted = False
        self.listed_ns = 0
        self.flushed_at = 0.0
        self._always = log_dir.flush_policy is FlushPolicy.ALWAYS
        self.opener = SegmentOpener(
            log_dir.env.fs, writable=not self.read_only, zeros_ahead=self._always
        )
        self.cleaning = threading.Lock()
        # Which segments there are, apart from rolling. It is taken before the core's lock, and may
        # be held while the disk is waited for; the core's may not, since appends wait for it.
        self.swapping = threading.Lock()
        self._sync_group = SyncGroup()
        self.sync_failure: OSError | None = None
        self._tail: Tail | None = None
        self.on_durable: Callable[[], object] | None = None
        """With flush="always": called, from any thread, when more of the log may be seen."""
        self.core = LogCore(self, clock=log_dir.custom_clock, writable=not self.read_only)
        self.core.shows_durable = self._always and not self.read_only
        self.config = config
        self.configure(config)

    # -- what it is

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.core.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets. A read-only log looks for what came meanwhile."""
        if self.read_only:
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
        return sum(segment.size_bytes for segment in self.core.segments)

    @property
    def segments(self) -> Sequence[LogSegment]:
        """The segments, ascending by base offset; the last one is appended to."""
        return tuple(self.core.segments)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets {self.core.log_start_offset} to "
            f"{self.core.log_end_offset}, {len(self.core.segments)} segments)"
        )

    def configure(self, config: LogConfig) -> None:
        """Act by these settings from now on."""
        self.config = config
        self.core.configure(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms - self._jitter_ms(config),
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            max_message_bytes=config.max_message_bytes,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            compacted=config.compacts,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
        )

    def _jitter_ms(self, config: LogConfig) -> int:
        """What of segment.jitter.ms falls to this log: by its name, so that logs differ."""
        most = min(config.segment_jitter_ms, config.segment_ms)
        return crc32(str(self.topic_partition).encode()) % most if most else 0

    # -- append

    @property
    def _epoch(self) -> int:
        return max(self.core.epochs.latest_epoch, 0)

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> int:
        """Append one record (timestamp in ms, default now); return its offset.

        Raises RecordTooLargeError, DiskFullError and other LogErrors; the log is usable after.
        """
        try:
            offset = self.core.append_record(value, key, timestamp, headers, _CURRENT_EPOCH)
        except OSError as error:
            raise self._failed(error) from error
        if self._always:
            self.sync_until(offset + 1)
        return offset

    def append_many(
        self,
        records: Iterable[Any],
        *,
        compression: str = "none",
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append records with one write: values, (key, value), (key, value, timestamp) or
        (key, value, timestamp, headers). All of them are in the log afterwards, or none.
        """
        return self._append_records(records, compression, leader_epoch, -1)

    def append_at(
        self,
        base_offset: int,
        records: Iterable[Any],
        *,
        compression: str = "none",
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append records from a given offset on (KIP-391), which may leave a gap.

        Raises InvalidProduceOffsetError where ``base_offset`` is below the log end offset.
        """
        if base_offset < 0:
            raise ValueError(f"base_offset is {base_offset}: an offset is 0 or more")
        return self._append_records(records, compression, leader_epoch, base_offset)

    def _append_records(
        self, records: Iterable[Any], compression: str, epoch: int | None, base_offset: int
    ) -> AppendInfo:
        codec = 0 if compression == "none" else int(compression_for(compression).id)
        try:
            info = self.core.append_records(
                records, codec, _CURRENT_EPOCH if epoch is None else epoch, base_offset
            )
        except OSError as error:
            raise self._failed(error) from error
        if self._always:
            self.sync_until(info.last_offset + 1)
        return info

    def append_batches(
        self, buffer: Buffer, *, leader_epoch: int | None = None, origin: str = "client"
    ) -> AppendInfo:
        """Append ready record batches. Offsets are set in place in a writable buffer.

        ``origin``: "client" (validated, offsets assigned), "coordinator" (control batches too),
        "replica" (taken as they are) or "given" (KIP-391: their own offsets).
        """
        try:
            info = self.core.append_buffer(
                buffer, self._epoch if leader_epoch is None else leader_epoch, origin
            )
        except OSError as error:
            raise self._failed(error) from error
        if self._always:
            self.sync_until(info.last_offset + 1)
        return info

    # -- read

    def _limit(self, isolation: str) -> int:
        if isolation == "read_uncommitted":
            return self.core.high_watermark
        if isolation == "read_committed":
            return self.core.last_stable_offset
        raise ValueError(f"isolation is {isolation!r}: use read_uncommitted or read_committed")

    def _read(self, offset: int, max_bytes: int, isolation: str) -> tuple[bytes, int]:
        if self.closed:
            raise errors.closed_error(str(self.topic_partition), self.log_dir.opened_by)
        if self.read_only and offset >= self.core.high_watermark:
            self.refresh()
        try:
            return self.core.read(offset, self._limit(isolation), max_bytes)
        except FileNotFoundError:
            if not self.read_only:
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
        if self.read_only:
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
        return timestamps.offset_for_timestamp(self, timestamp_ms)

    def largest_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None without any."""
        return timestamps.largest_timestamp(self)

    # -- durability

    def sync_until(self, offset: int) -> None:
        """Return when every record below ``offset`` is on the disk. Concurrent callers share one
        fdatasync.
        """
        core = self.core
        while core.durable_offset < offset and self._sync_group.wait(offset):
            try:
                durability.sync(self)
            finally:
                self._sync_group.done(core.durable_offset)

    def flush(self) -> None:
        """Put everything appended so far on the disk."""
        self._check_writable()
        self.sync_until(self.core.log_end_offset)

    def when_durable(self, offset: int, callback: Callable[[], object]) -> None:
        """Have ``callback`` called when every record below ``offset`` is on the disk, from another
        thread (or at once, if it is so already). For those who must not wait themselves.
        """
        if self.core.durable_offset >= offset:
            callback()
        else:
            self.log_dir.maintenance.sync_for(self, offset, callback)

    def show_durable(self) -> None:
        """With flush="always", tell those who wait for what is on the disk now."""
        if not self.core.shows_durable:
            return
        if self._tail is not None:
            self._tail.wake()
        if self.on_durable is not None:
            self.on_durable()

    def forget_durable(self, base_offset: int, end_offset: int) -> None:
        """The log was cut in the segment with this base offset, to this end."""
        self.core.durable_offset = min(self.core.durable_offset, end_offset)
        self._sync_group.rewind(end_offset)
        if self.durable[2] > end_offset:
            self.durable = (base_offset, 0, base_offset)

    # -- follow

    @property
    def tail(self) -> Tail:
        """Who waits for this log to grow."""
        if self._tail is None:
            self._tail = Tail(self)
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

    def cursor(self, name: str, *, isolation: str = "read_uncommitted") -> Cursor:
        """A named cursor, which reads on from where ``name`` last committed."""
        from kstore.log.cursor import Cursor

        return Cursor(self, self.log_dir.committed_offsets, name, isolation=isolation)

    # -- change

    def roll(self) -> None:
        """Begin a new segment, if the active one has records."""
        self._check_writable()
        with self.core:
            if self.core.active.size_bytes:
                self.roll_for_append(self.core.log_end_offset)

    def enforce_retention(self, now_ms: int | None = None) -> int:
        """Delete the segments that retention allows to delete; return how many."""
        self._check_writable()
        return retention.enforce(self, self.log_dir.now_ms() if now_ms is None else now_ms)

    def delete_before(self, offset: int) -> None:
        """Make ``offset`` the log start offset; segments that lie wholly before it are deleted.

        Raises OffsetOutOfRangeError above the high watermark. Below the log start offset nothing
        happens.
        """
        self._check_writable()
        retention.delete_before(self, offset)

    def truncate(self, offset: int) -> int:
        """Remove the batches that hold ``offset`` or more; return the new log end offset, which
        is below ``offset`` where that lay inside a batch.
        """
        self._check_writable()
        return retention.truncate(self, offset)

    def own_directory(self) -> Log:
        """Have ``close`` close the directory too."""
        self._owns_dir = True
        return self

    def compact(self, now_ms: int | None = None) -> CleaningReport:
        """Clean what can be cleaned now: of each key the last record stays, but for those in the
        active segment. ValueError unless cleanup_policy has compact.
        """
        from kstore.log.retention.cleaner import clean, measure

        self._check_writable()
        if not self.config.compacts:
            raise ValueError(f"{self.topic_partition} has no cleanup_policy compact: set it first")
        now = self.log_dir.now_ms() if now_ms is None else now_ms
        known = None if self.cleaned_offset < 0 else self.cleaned_offset
        report = clean(self, measure(self, now, known), now)
        self.cleaned_offset = report.end_offset
        self.note_dirty()
        return report

    def close(self) -> None:
        """Checkpoint, and close its files. A log that ``open_log`` gave closes its directory."""
        if self.closed:
            return
        if self._owns_dir:
            self.log_dir.close()
        else:
            self.log_dir.close_log(self)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def refresh(self) -> bool:
        """Look for what another process has written; True if there is something new."""
        return self.log_dir.refresh(self) if self.read_only and not self.closed else False

    def _check_writable(self) -> None:
        if self.closed:
            raise errors.closed_error(str(self.topic_partition), self.log_dir.opened_by)
        if self.read_only:
            raise errors.ReadOnlyLogError(
                f"{self.topic_partition} is open for reading only: open it without read_only"
            )

    def _failed(self, error: OSError) -> errors.LogStorageError:
        return errors.storage_error(error, f"appending to {self.topic_partition}")

    # -- what the core asks of its owner

    def roll_for_append(self, base_offset: int) -> None:
        """Seal the active segment and begin one at ``base_offset``. The core's lock is held."""
        # First: only the newest segment may ever run ahead of its data.
        self.core.active.handle_or_open().give_back()
        segment = new_segment(self.opener, self.path, base_offset, self.env)
        if self.config.preallocate:
            segment.handle_or_open().preallocate(self.config.segment_bytes)
        if self.core.producers.any_seen:
            self.pending_snapshots[base_offset] = self.core.producers.pack()
        self.core.active.seal()
        segment.own_position = 0
        self.unsynced_names = True
        self.core.set_segments([*self.core.segments, segment])
        self.note_dirty()

    def append_error(self, code: int, size_bytes: int, log_end_offset: int) -> errors.LogError:
        """The exception for an append that was answered with an error code."""
        if code == ErrorCode.KAFKA_STORAGE_ERROR and self.read_only:
            return errors.ReadOnlyLogError(
                f"{self.topic_partition} is open for reading only: open it without read_only"
            )
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            return errors.closed_error(str(self.topic_partition), self.log_dir.opened_by)
        limit = self.core.max_message_bytes
        return errors.append_error(
            code, str(self.topic_partition), size_bytes, limit, log_end_offset
        )

    def corrupt(self, segment: LogSegment, position: int) -> errors.CorruptLogError:
        """The exception for a batch that is damaged, or does not follow the one before it."""
        from kstore.log.segments.damage import examine

        segment_index.load_whole(self, segment)
        return examine(self, segment, position)

    def out_of_range(self, offset: int) -> errors.OffsetOutOfRangeError:
        """The exception for an offset outside the log."""
        core = self.core
        return errors.OffsetOutOfRangeError(
            str(self.topic_partition), offset, core.log_start_offset, core.log_end_offset
        )

    def load_index(self, segment: LogSegment, offset: int, wrong: bool = False) -> None:
        """Bring the index entries around ``offset`` into memory; anew, where one was ``wrong``."""
        segment_index.load_around(self, segment, offset, wrong=wrong)

    def note_dirty(self) -> None:
        """Something changed that has to get into the index environment."""
        self.log_dir.note_dirty(self)
