"""A cleaned segment takes the place of others in a log that is in use. Readers keep the old ones,
which are open, until the new one has its name. It cleans nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from kstore.log.errors import storage_error
from kstore.log.local.checkpoint import forget_segments_now
from kstore.log.segments.segment_names import segment_path
from kstore.log.segments.swap import Swap, decide, finish, is_needed, take_back

if TYPE_CHECKING:
    from kstore._fast.log.log_segment import LogSegment
    from kstore.log.local.local_log import LocalLog

__all__ = ["SegmentSwap"]


class SegmentSwap:
    """One swap. The log's lock for that is held by who calls its methods.

    ``group`` are neighbours in the log, all open; ``end_offset`` is where the segment behind them
    begins.
    """

    def __init__(
        self, log: LocalLog, group: list[LogSegment], cleaned: LogSegment, end_offset: int
    ) -> None:
        self._log = log
        self._group = group
        self._cleaned = cleaned
        self._swap = Swap(cleaned.base_offset, end_offset, len(group))
        self._is_forgotten = self._is_finished = self._is_placed = False
        self.bases = frozenset(segment.base_offset for segment in group)

    def make(self) -> None:
        """Swap. If that fails it is taken back, or finished if it can only be finished. If neither
        can be done now, it is left to whoever takes the lock next.
        """
        log = self._log
        log.swapping.unfinished = self
        try:
            decide(log.env.fs, log.path, self._swap)
            self._replace()
            self._settled()
        except BaseException:
            log.note_dirty()
            with suppress(OSError):
                self.settle()
            raise

    def settle(self) -> None:
        """Finish it, or take it back if nothing was removed yet."""
        log = self._log
        fs = log.env.fs
        try:
            if not self._is_placed:
                if self._is_finished or is_needed(fs, log.path, self._swap, fs.listdir(log.path)):
                    self._replace()
                else:
                    self._take_back()
            self._settled()
        except OSError as error:
            doing = f"finishing a compaction of {log.topic_partition}"
            raise storage_error(error, doing) from error

    def _take_back(self) -> None:
        log = self._log
        take_back(log.env.fs, log.path, self._swap)
        self._cleaned.close()

    def _replace(self) -> None:
        log = self._log
        core = log.core
        with ExitStack() as stack:
            if core.page is not None:
                stack.enter_context(core)  # no other process looks at the files meanwhile
            if not self._is_forgotten:  # once: it needs space, of which there may be none
                with core:
                    self._move_durable_end()
                    forget_segments_now(log, sorted(self.bases))
                self._is_forgotten = True
            if not self._is_finished:
                with core:
                    self._open_replaced()
                finish(log.env.fs, log.path, self._swap, self.bases)
                self._is_finished = True
            with core:
                self._take_place()

    def _replaced(self) -> list[LogSegment]:
        """The segments in memory that the cleaned one replaces."""
        segments = self._log.core.segments
        bases = self._swap.replaced(segment.base_offset for segment in segments)
        return [segment for segment in segments if segment.base_offset in bases]

    def _open_replaced(self) -> None:
        """Readers keep them without their names."""
        for segment in self._replaced():
            with suppress(FileNotFoundError):
                segment.handle_or_open()

    def _move_durable_end(self) -> None:
        """Where all of the group is on the disk, the durable end is behind it: a position in one of
        its files will mean nothing.
        """
        reached, end = self._log.disk.reached, self._swap.end_offset
        if reached[0] in self.bases and reached[2] >= self._group[-1].next_offset:
            self._log.disk.reached = (end, 0, end)

    def _take_place(self) -> None:
        """The same in memory."""
        log, cleaned = self._log, self._cleaned
        core = log.core
        cleaned.close()  # it is opened again under its own name
        cleaned.path = segment_path(log.path, cleaned.base_offset)
        # By offset: if another process was killed meanwhile, the log was loaded again.
        gone = self._replaced()
        kept = [segment for segment in core.segments if segment not in gone]
        core.set_segments(sorted([*kept, cleaned], key=lambda segment: segment.base_offset))
        self._is_placed = True
        log.note_dirty()

    def _settled(self) -> None:
        """It can't come back, or be undone, by a power cut."""
        log = self._log
        if self._is_placed:
            log.env.fs.fsync_dir(log.path)
        log.swapping.unfinished = None
