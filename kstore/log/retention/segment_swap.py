"""A cleaned segment takes the place of others in a log that is in use. Readers keep the old ones,
which are open, until the new one has its name. It cleans nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from kstore.log.errors import storage_error
from kstore.log.local.checkpoint import forget_segments_now
from kstore.log.segments.segment_names import segment_path
from kstore.log.segments.swap import CLEANED, Swap, decide, finish, is_needed, take_back

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
        self._is_placed = False
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
                if is_needed(fs, log.path, self._swap, fs.listdir(log.path)):
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
        with suppress(FileNotFoundError):
            log.env.fs.unlink(segment_path(log.path, self._cleaned.base_offset, CLEANED))

    def _replace(self) -> None:
        log = self._log
        core = log.core
        with ExitStack() as stack:
            if core.page is not None:
                stack.enter_context(core)  # no other process looks at the files meanwhile
            with core:
                self._move_durable_end()
                forget_segments_now(log, sorted(self.bases))
            finish(log.env.fs, log.path, self._swap, self.bases)
            with core:
                self._take_place()

    def _move_durable_end(self) -> None:
        """Where all of the group is on the disk, the durable end is behind it: a position in one of
        its files will mean nothing.
        """
        reached, end = self._log.disk.reached, self._swap.end_offset
        if reached[0] in self.bases and reached[2] >= self._group[-1].next_offset:
            self._log.disk.reached = (end, 0, end)

    def _take_place(self) -> None:
        """The same in memory."""
        log, cleaned, group = self._log, self._cleaned, self._group
        core = log.core
        cleaned.close()  # it is opened again under its own name
        cleaned.path = segment_path(log.path, cleaned.base_offset)
        at = core.segments.index(group[0])
        core.set_segments([*core.segments[:at], cleaned, *core.segments[at + len(group) :]])
        self._is_placed = True
        log.note_dirty()

    def _settled(self) -> None:
        """It can't come back, or be undone, by a power cut."""
        log = self._log
        if self._is_placed:
            log.env.fs.fsync_dir(log.path)
        log.swapping.unfinished = None
