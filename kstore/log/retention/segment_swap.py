"""Replaces segments of a log in use with a cleaned segment. Readers use the old segments, which
are open, until the new one has its final name. cleaner.py does the cleaning.
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
    """One swap. The caller of its methods must hold the log's lock ``swapping``.

    ``group``: neighbouring segments of the log, all open. ``end_offset``: the base offset of the
    segment after them.
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
        """Swap. After a failure the swap is undone, or finished if old segments are already
        removed. If that fails too, the next holder of the lock does it.
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
        """Finish the swap, or undo it if no old segment has been removed yet."""
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
                stack.enter_context(core)  # other processes do not read the folder meanwhile
            if not self._is_forgotten:  # only once: it needs space, and the disk may be full
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
        """Open the old segments, so that readers can use them after their files are removed."""
        for segment in self._replaced():
            with suppress(FileNotFoundError):
                segment.handle_or_open()

    def _move_durable_end(self) -> None:
        """If the whole group is on the disk, move the durable end to the end of the group: a
        position in one of the old files becomes invalid.
        """
        reached, end = self._log.disk.reached, self._swap.end_offset
        if reached[0] in self.bases and reached[2] >= self._group[-1].next_offset:
            self._log.disk.reached = (end, 0, end)

    def _take_place(self) -> None:
        """Replace the segments in memory."""
        log, cleaned = self._log, self._cleaned
        core = log.core
        cleaned.close()  # it is opened again under its own name
        cleaned.path = segment_path(log.path, cleaned.base_offset)
        # By offset: the log was loaded again if another process was killed meanwhile.
        gone = self._replaced()
        kept = [segment for segment in core.segments if segment not in gone]
        core.set_segments(sorted([*kept, cleaned], key=lambda segment: segment.base_offset))
        self._is_placed = True
        log.note_dirty()

    def _settled(self) -> None:
        """Note that the swap is settled, so that a power cut neither undoes nor repeats it."""
        log = self._log
        if self._is_placed:
            log.env.fs.fsync_dir(log.path)
        log.swapping.unfinished = None
