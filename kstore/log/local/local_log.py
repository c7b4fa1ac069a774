"""The internal state of one log, as Kafka's LocalLog: retention, checkpoints, recovery, syncs and
the cleaner read and change a log only through this class. ``kstore.log.Log`` is the facade that
combines these parts for users.

Its only own operation is to start segments. It does not read records.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol
from zlib import crc32

from kstore._fast.log.log_core import LogCore
from kstore._fast.log.log_segment import LogSegment
from kstore._fast.log.sync_group import SyncGroup
from kstore.errors.codes import ErrorCode
from kstore.log import errors
from kstore.log.local.log_dir_state import LogDirState
from kstore.log.local.recovery_report import Loss, RecoveryReport
from kstore.log.local.swap_lock import SwapLock
from kstore.log.segments.segment_names import SegmentOpener, new_segment, segment_path
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.types import TopicPartition

__all__ = ["DiskState", "Fallbacks", "LocalLog", "Unsaved", "Upkeep", "Waiters"]


class Upkeep(Protocol):
    """Work that a log defers; ``maintenance.py`` does it."""

    def note_dirty(self, log: LocalLog) -> None:
        """Something in the log must be written to the index environment, or made durable."""

    def unlink_later(self, path: str, delay_ms: int) -> None:
        """Delete a file after a while: readers may still want to open it."""


class Waiters(Protocol):
    """The waiters for the log to grow; ``tail.py`` implements it."""

    def wake(self) -> None:
        """Let every waiter check again."""

    def close(self) -> None:
        """Wake all waiters permanently."""


class Fallbacks(NamedTuple):
    """What the core calls if the data in memory is not sufficient for a read; recovery implements
    both.
    """

    load_index: Callable[[LocalLog, LogSegment, int, bool], None]
    """Load the index entries around an offset into memory; reload them if one was wrong."""
    corrupt: Callable[[LocalLog, LogSegment, int], errors.CorruptLogError]
    """Find the damage near a position, and return the exception for it."""


class DiskState:
    """The durable state of a log, and its listeners."""

    __slots__ = (
        "failure",
        "flushed_at",
        "group",
        "on_durable",
        "reached",
        "timestamp",
        "unsynced_names",
    )

    def __init__(self) -> None:
        self.reached: tuple[int, int, int] = (0, 0, 0)
        """The durable end: segment, position in it, offset."""
        self.timestamp = -1
        """With flush="always": the largest timestamp of durable records."""
        self.unsynced_names = True
        """The names of new segments may not be durable yet."""
        self.failure: OSError | None = None
        """The error after which nothing is synced any more."""
        self.on_durable: Callable[[], object] | None = None
        """With flush="always": called, from any thread, when more of the log may be read."""
        self.flushed_at = 0.0
        """When flush.ms was last applied, on the monotonic clock."""
        self.group = SyncGroup()
        """The waiters for the same fdatasync."""


class Unsaved:
    """What the next checkpoint writes to the index environment, or deletes from it."""

    __slots__ = ("changes", "forgotten", "generation", "snapshots")

    def __init__(self) -> None:
        self.snapshots: dict[int, bytes] = {}
        """The producers as of these offsets."""
        self.forgotten: list[int] = []
        """Segments whose index is deleted."""
        self.generation = 0
        """How often the index of written data was withdrawn: a checkpoint that was captured before
        is invalid.
        """
        self.changes = 0
        """The same over all openings: readers in other processes load the log again."""


class LocalLog:
    """The state of one log. Its segments, offsets, epochs and producers belong to the core, and
    change only with the core's lock held.
    """

    hole_from = -1
    """From this offset on, a gap between segments may be records that were not durable before a
    power loss; -1: there is no such gap, or it has been handled.
    """

    start_is_saved = True
    """Whether the log start offset of the last deletion is written to its file."""

    def __init__(
        self,
        directory: LogDirState,
        upkeep: Upkeep,
        fallbacks: Fallbacks,
        topic_partition: TopicPartition,
        path: str,
        config: LogConfig,
        topic_id: uuid.UUID | None,
    ) -> None:
        self.directory = directory
        self.upkeep = upkeep
        self._fallbacks = fallbacks
        self.topic_partition = topic_partition
        self.path = path
        self.name = os.path.basename(path)
        self.topic_id = topic_id
        self.env = directory.env
        self.read_only = directory.read_only
        self.closed = self.deleted = False
        always = directory.flush_policy is FlushPolicy.ALWAYS
        self.opener = SegmentOpener(
            directory.env.fs,
            writable=not self.read_only,
            zeros_ahead=always and not directory.shared,
            write_back=directory.write_back,
            pages=directory.pages,
            reserve_later=directory.appends.reserve,
            shared=directory.shared,
        )
        self.finishes_swaps = not self.read_only
        """Whether loading it finishes what a killed cleaner began."""
        self.follow_page: Callable[[LocalLog], None] | None = None
        """Applies the changes of other processes, if several write to it."""
        self.cleaning = threading.Lock()
        """Held by the cleaner, and while a lost part is written again."""
        self.swapping = SwapLock()
        """Held to change the list of segments, except by rolling."""
        self.recovery = RecoveryReport()
        self.lost_until = 0
        """Below this offset a replica has lost records of its log; 0: none."""
        self.lost_epochs: list[tuple[int, int]] = []
        """Leader epochs that began in the lost part, with their start offsets."""
        self.lost: list[Loss] = []
        """What was lost and is not restored yet; refill.lost_parts updates it."""
        self.listed_ns = 0
        """The directory's timestamp when a reader last listed it."""
        self.disk = DiskState()
        """For durability: how much of the log is durable."""
        self.unsaved = Unsaved()
        """The checkpoint's: what the index environment does not have yet."""
        self.unremoved: list[str] = []
        """Files of segments that the log no longer has; they must still be removed."""
        self.cleaned_offset = -1
        """The log is clean below it; -1: it was never cleaned."""
        self.waiters: Waiters | None = None
        """The waiters for the log to grow, if there are any."""
        # No reference cycles: the memory of a deleted log is freed with its last user, and the
        # garbage collector does not have to find 10,000 of them at once.
        self.core = LogCore(
            weakref.proxy(self),
            clock=directory.custom_clock,
            writable=not self.read_only,
            calm=directory.calm,
            appends=directory.appends,
            pages=directory.pages,
        )
        self.core.shows_durable = always and not self.read_only
        self.config = config
        self.configure(config)

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.size_bytes for segment in self.core.segments)

    def first_hole(self) -> int:
        """The start of the first gap that ``hole_from`` describes; -1: there is none."""
        least = max(self.hole_from, self.core.log_start_offset)
        for one, behind in pairwise(self.core.segments):
            if self.hole_from >= 0 and max(one.next_offset, least) < behind.base_offset:
                return max(one.next_offset, least)
        return -1

    def configure(self, config: LogConfig) -> None:
        """Apply these settings from now on."""
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
        """The share of segment.jitter.ms of this log, from its name, so that logs differ."""
        most = min(config.segment_jitter_ms, config.segment_ms)
        return crc32(str(self.topic_partition).encode()) % most if most else 0

    def check_writable(self) -> None:
        """Raise LogClosedError for a closed log, ReadOnlyLogError for one that is open for
        reading.
        """
        if self.closed:
            raise self.closed_error()
        if self.read_only:
            raise self._read_only_error()

    def check_keeper(self) -> None:
        """As `check_writable`; raises NotKeeperError if another process does the maintenance."""
        self.check_writable()
        self.directory.check_keeper(str(self.topic_partition))

    def shut(self) -> None:
        """Close the log. After this no swap is in progress and none begins: the folder may be
        deleted, or belong to another log.
        """
        with self.swapping.plain:
            page = self.core.page
            if page is not None and self.deleted:
                page.mark_deleted()
            self.core.share(None)
            with self.core as core:
                core.close()
                self.closed = True
                for segment in core.segments:
                    segment.close()
            name, opened_by = str(self.topic_partition), self.directory.opened_by
            self.swapping.end(partial(errors.closed_error, name, opened_by))
        if self.waiters is not None:
            self.waiters.close()

    def note_dirty(self) -> None:
        """Something has changed that must be written to the index environment."""
        if not self.read_only:
            self.upkeep.note_dirty(self)

    def wake(self) -> None:
        """Let the waiters of the log check again."""
        if self.waiters is not None:
            self.waiters.wake()

    # -- segments

    def roll_for_append(self, base_offset: int, *, reserves: bool = True) -> None:
        """Seal the active segment and start one at ``base_offset``, with disk space if the settings
        say so and it ``reserves``. The core's lock is held.
        """
        core = self.core
        # First: only the newest segment's file may be longer than its data.
        core.active.handle_or_open().give_back()
        segment = self.new_segment(base_offset)
        if self.config.preallocate and reserves:
            segment.handle_or_open().preallocate(self.config.segment_bytes)
        if core.producers.any_seen:
            self.unsaved.snapshots[base_offset] = core.producers.pack()
        self._begin(segment)
        self.note_dirty()

    def begin_segment(self, offset: int) -> None:
        """Continue at an offset after the end, in a new segment: a gap is valid."""
        self._begin(self.new_segment(offset))

    def new_segment(self, offset: int) -> LogSegment:
        """Create an empty segment. Files of removed segments that would come before it in the log,
        or have its name, are deleted first. The core's lock must be held.
        """
        if self.unremoved:
            first, place = self.core.segments[0].path, segment_path(self.path, offset)
            for path in [p for p in self.unremoved if p == place or first <= p <= place]:
                with suppress(FileNotFoundError):
                    self.env.fs.unlink(path)
                self.unremoved.remove(path)
        return new_segment(self.opener, self.path, offset, self.env)

    def _begin(self, segment: LogSegment) -> None:
        segment.own_position = 0
        self.take_segment(segment)

    def take_segment(self, segment: LogSegment) -> None:
        """Continue in an existing segment."""
        self.core.active.seal()
        self.core.shift_segments([*self.core.segments, segment])
        self.disk.unsynced_names = True

    # -- called by the core

    def catch_up(self) -> None:
        """Apply the changes of other processes. Both locks are held."""
        if self.follow_page is not None:
            self.follow_page(self)

    def tell_waiting(self, holder: int) -> None:
        """Another process has held the lock for seconds."""
        from logging import getLogger

        getLogger("kstore.log").warning(
            "%s: waiting for process %d, which has the log's lock", self.topic_partition, holder
        )

    def load_index(self, segment: LogSegment, offset: int, wrong: bool = False) -> None:
        """Load the index entries around ``offset`` into memory; reload them if one was
        ``wrong``.
        """
        self._fallbacks.load_index(self, segment, offset, wrong)

    def corrupt(self, segment: LogSegment, position: int) -> errors.CorruptLogError:
        """The exception for a batch that is damaged, or does not follow the one before it."""
        return self._fallbacks.corrupt(self, segment, position)

    def append_error(self, code: int, size_bytes: int, log_end_offset: int) -> errors.LogError:
        """The exception for an append that failed with an error code."""
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            return self._read_only_error() if self.read_only else self.closed_error()
        return errors.append_error(
            code,
            str(self.topic_partition),
            size_bytes,
            self.core.max_message_bytes,
            log_end_offset,
        )

    def unexpected_offset(self, expected: int) -> errors.UnexpectedOffsetError:
        """The exception for a conditional append at the wrong offset."""
        return errors.UnexpectedOffsetError(
            str(self.topic_partition), expected, self.core.log_end_offset
        )

    def append_failed(self, error: OSError) -> errors.LogStorageError:
        """The exception for an append whose write failed."""
        return errors.storage_error(error, f"appending to {self.topic_partition}")

    def out_of_range(self, offset: int) -> errors.OffsetOutOfRangeError:
        """The exception for an offset outside the log."""
        core = self.core
        return errors.OffsetOutOfRangeError(
            str(self.topic_partition), offset, core.log_start_offset, core.log_end_offset
        )

    def closed_error(self) -> errors.LogClosedError:
        """The exception for using a closed log."""
        return errors.closed_error(str(self.topic_partition), self.directory.opened_by)

    def _read_only_error(self) -> errors.ReadOnlyLogError:
        return errors.ReadOnlyLogError(
            f"{self.topic_partition} is open for reading only: open it without read_only"
        )
