"""One log as its parts see it, as Kafka's LocalLog is: what retention, checkpoints, recovery, the
syncs and the cleaner see and change of a log is this, and nothing else. ``kstore.log.Log`` is the
facade that puts these parts together for its users.

By itself it only begins segments. It neither reads records nor removes files.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable
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
from kstore.log.segments.segment_names import SegmentOpener, new_segment
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.types import TopicPartition

__all__ = ["DiskState", "Fallbacks", "LocalLog", "Unsaved", "Upkeep", "Waiters"]


class Upkeep(Protocol):
    """What a log leaves to be done later; ``maintenance.py`` does it."""

    def note_dirty(self, log: LocalLog) -> None:
        """Something in the log has to get into the index environment, or to the disk."""

    def unlink_later(self, path: str, delay_ms: int) -> None:
        """Remove a file after a while: readers may still want to open it."""


class Waiters(Protocol):
    """Who waits for the log to grow; ``tail.py`` has them."""

    def wake(self) -> None:
        """Let every waiter look again."""

    def close(self) -> None:
        """Wake all waiters for good."""


class Fallbacks(NamedTuple):
    """What the core does where what is in memory does not do for a read; recovery has both."""

    load_index: Callable[[LocalLog, LogSegment, int, bool], None]
    """Bring the index entries around an offset into memory; again, where one was wrong."""
    corrupt: Callable[[LocalLog, LogSegment, int], errors.CorruptLogError]
    """Find what is damaged near a position, and the exception for it."""


class DiskState:
    """How much of a log is on the disk, and who is told of it."""

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
        """Up to where the disk has everything: segment, position in it, offset."""
        self.timestamp = -1
        """With flush="always": the largest timestamp of what is on the disk."""
        self.unsynced_names = True
        """The names of new segments may not be on the disk yet."""
        self.failure: OSError | None = None
        """Nothing is synced any more after it."""
        self.on_durable: Callable[[], object] | None = None
        """With flush="always": called, from any thread, when more of the log may be seen."""
        self.flushed_at = 0.0
        """When flush.ms was last obeyed, on the monotonic clock."""
        self.group = SyncGroup()
        """Those who wait for the same fdatasync."""


class Unsaved:
    """What of a log the next checkpoint brings to the index environment, or takes from it."""

    __slots__ = ("changes", "forgotten", "generation", "snapshots")

    def __init__(self) -> None:
        self.snapshots: dict[int, bytes] = {}
        """The producers as of these offsets."""
        self.forgotten: list[int] = []
        """Segments whose index goes."""
        self.generation = 0
        """How often the index of what is written already was taken back: a checkpoint that was
        captured before is void.
        """
        self.changes = 0
        """The same over all openings: readers in other processes load the log again."""


class LocalLog:
    """The state of one log. Its segments, offsets, epochs and producers are the core's, and changed
    with the core's lock held.
    """

    hole_from = -1
    """From here on a gap between segments may be records that a power loss took before they were on
    the disk; -1: there is no such gap, or it has been dealt with.
    """

    start_is_saved = True
    """Whether a deletion before an offset has written where the log begins."""

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
        """Takes in what other processes have done to it, where several write."""
        self.cleaning = threading.Lock()
        """Held by the cleaner, and by who writes a lost part again."""
        self.swapping = SwapLock()
        """Which segments there are, apart from rolling."""
        self.recovery = RecoveryReport()
        self.lost_until = 0
        """Before this offset a replica has lost records that were in its log; 0: none."""
        self.lost_epochs: list[tuple[int, int]] = []
        """Leader epochs that began within what was lost, with the offsets where they began."""
        self.lost: list[Loss] = []
        """What was lost and is not back yet; refill.lost_parts keeps it."""
        self.listed_ns = 0
        """The directory's time stamp when a reader last looked at its names."""
        self.disk = DiskState()
        """Durability's: how much of the log is on the disk."""
        self.unsaved = Unsaved()
        """The checkpoint's: what the index environment does not have yet."""
        self.unremoved: list[str] = []
        """Files of segments that it no longer has, which are to be removed."""
        self.cleaned_offset = -1
        """Below it the log is clean; -1: it was never cleaned."""
        self.waiters: Waiters | None = None
        """Who waits for the log to grow, if anybody has."""
        # Not a ring of references: what a deleted log takes goes with the last who uses it, and no
        # collection has to find 10,000 of them at once.
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
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.core.segments)

    def first_hole(self) -> int:
        """Where the first gap of which ``hole_from`` speaks begins; -1: there is none."""
        least = max(self.hole_from, self.core.log_start_offset)
        for one, behind in pairwise(self.core.segments):
            if self.hole_from >= 0 and max(one.next_offset, least) < behind.base_offset:
                return max(one.next_offset, least)
        return -1

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

    def check_writable(self) -> None:
        """LogClosedError for a closed log, ReadOnlyLogError for one that is open for reading."""
        if self.closed:
            raise self.closed_error()
        if self.read_only:
            raise self._read_only_error()

    def check_keeper(self) -> None:
        """As `check_writable`; NotKeeperError where another process does the maintenance."""
        self.check_writable()
        self.directory.check_keeper(str(self.topic_partition))

    def note_dirty(self) -> None:
        """Something changed that has to get into the index environment."""
        if not self.read_only:
            self.upkeep.note_dirty(self)

    def wake(self) -> None:
        """Let who waits for the log look again."""
        if self.waiters is not None:
            self.waiters.wake()

    # -- segments

    def roll_for_append(self, base_offset: int) -> None:
        """Seal the active segment and begin one at ``base_offset``. The core's lock is held."""
        core = self.core
        # First: only the newest segment may ever run ahead of its data.
        core.active.handle_or_open().give_back()
        segment = new_segment(self.opener, self.path, base_offset, self.env)
        if self.config.preallocate:
            segment.handle_or_open().preallocate(self.config.segment_bytes)
        if core.producers.any_seen:
            self.unsaved.snapshots[base_offset] = core.producers.pack()
        self._begin(segment)
        self.note_dirty()

    def begin_segment(self, offset: int) -> None:
        """Go on at an offset behind the end, in a segment of its own: a gap is legal."""
        self._begin(new_segment(self.opener, self.path, offset, self.env))

    def _begin(self, segment: LogSegment) -> None:
        segment.own_position = 0
        self.take_segment(segment)

    def take_segment(self, segment: LogSegment) -> None:
        """Go on in a segment that is there."""
        self.core.active.seal()
        self.core.shift_segments([*self.core.segments, segment])
        self.disk.unsynced_names = True

    # -- what the core asks of its owner

    def catch_up(self) -> None:
        """Take in what other processes have done. Both locks are held."""
        if self.follow_page is not None:
            self.follow_page(self)

    def tell_waiting(self, holder: int) -> None:
        """Another process has had the lock for seconds."""
        from logging import getLogger

        getLogger("kstore.log").warning(
            "%s: waiting for process %d, which has the log's lock", self.topic_partition, holder
        )

    def load_index(self, segment: LogSegment, offset: int, wrong: bool = False) -> None:
        """Bring the index entries around ``offset`` into memory; again, where one was ``wrong``."""
        self._fallbacks.load_index(self, segment, offset, wrong)

    def corrupt(self, segment: LogSegment, position: int) -> errors.CorruptLogError:
        """The exception for a batch that is damaged, or does not follow the one before it."""
        return self._fallbacks.corrupt(self, segment, position)

    def append_error(self, code: int, size_bytes: int, log_end_offset: int) -> errors.LogError:
        """The exception for an append that was answered with an error code."""
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
        """The exception for a conditional append that comes too late."""
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
        """The exception for who uses a closed log."""
        return errors.closed_error(str(self.topic_partition), self.directory.opened_by)

    def _read_only_error(self) -> errors.ReadOnlyLogError:
        return errors.ReadOnlyLogError(
            f"{self.topic_partition} is open for reading only: open it without read_only"
        )
