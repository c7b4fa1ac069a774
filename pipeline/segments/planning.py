"""Plans the reading of a log dir's segment files: its partitions, the positions of offsets and
times by its LMDB indexes, and the byte ranges of each task. It runs on the driver, takes no lock
and changes nothing; a broker may use the log dir at the same time.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kstore._fast.log.log_segment import LogSegment
from kstore.clients.io.list_offsets import FoundOffset
from kstore.log import open_log_dir
from kstore.log.errors import LogError
from kstore.log.index.index_store import ENTRY_BYTES
from kstore.log.log import Log
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.planning import split
from kstore.pipeline.ranges import OffsetRange
from kstore.pipeline.read_options import EARLIEST, ReadOptions
from kstore.pipeline.segments.files import SegmentRange, SegmentSlice
from kstore.pipeline.topic_client import Life, TopicClient
from kstore.types import TopicPartition

__all__ = ["TASK_BYTES", "LogDirTopics"]

TASK_BYTES = 128 << 20
"""The approximate number of bytes of a task, as for Spark's own files."""


class LogDirTopics(TopicClient):
    """Answers the questions of a read from a log dir's files instead of from brokers."""

    def __init__(self, path: str, options: ReadOptions, *, committed: bool) -> None:
        super().__init__(options)
        self._committed = committed
        try:
            self._dir = open_log_dir(path, read_only=True)
        except LogError as error:
            raise PipelineError(
                str(error), remedy="Give the path of a log dir or an archive"
            ) from error

    def close(self) -> None:
        """Close all files."""
        self._dir.close()

    def partitions(self) -> dict[TopicPartition, Life]:
        """The selected partitions that have a log here."""
        selection = self._options.selection
        there = self._dir.partitions()
        if selection.pattern:
            open_to_users = (tp for tp in there if not tp.topic.startswith("__"))
            found = [tp for tp in open_to_users if selection.matches(tp.topic)]
        else:
            named = {*selection.partitions, *selection.topics}
            found = [tp for tp in there if tp in named or tp.topic in named]
            self._check_all_there(found)
        if not found:
            raise PipelineError(
                f"log dir {self._dir.path} has no partition of {selection}",
                remedy=f"It has {_names(there)}; path is a broker's log.dirs or an archive",
            )
        return {tp: Life(topic_id=str(self._dir.topic_id(tp) or "")) for tp in found}

    def _check_all_there(self, found: list[TopicPartition]) -> None:
        selection = self._options.selection
        topics = {tp.topic for tp in found}
        for topic in selection.topics:
            if topic not in topics:
                raise PipelineError(
                    f"log dir {self._dir.path} has no partition of it",
                    topic=topic,
                    remedy="Correct its name, or give the log dir of a broker that has it",
                )
        for tp in selection.partitions:
            if tp not in found:
                raise PipelineError(
                    f"log dir {self._dir.path} does not have it",
                    topic=tp.topic,
                    partition=tp.partition,
                    remedy="Correct option assign, or give the log dir of a broker that has it",
                )

    def offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """A FoundOffset for each timestamp in ms, EARLIEST or LATEST."""
        return {tp: self._offset(tp, timestamp) for tp, timestamp in timestamps.items()}

    def _offset(self, tp: TopicPartition, timestamp: int) -> FoundOffset:
        log = self._log(tp)
        if timestamp == EARLIEST:
            return FoundOffset(log.log_start_offset, -1, -1, -1)
        if timestamp < 0:
            return FoundOffset(self._end(log), -1, -1, -1)
        offset, time = log.offset_for_timestamp(timestamp) or (-1, -1)
        return FoundOffset(offset, time, -1, -1)

    def _end(self, log: Log) -> int:
        return log.last_stable_offset if self._committed else log.high_watermark

    def _log(self, tp: TopicPartition) -> Log:
        try:
            log = self._dir.log(tp.topic, tp.partition, create=False)
        except LogError as error:
            raise PipelineError(
                f"the log can't be opened: {error}", topic=tp.topic, partition=tp.partition
            ) from error
        missing = log.recovery.missing_segments
        if missing and self._options.fail_on_data_loss:
            raise PipelineError(
                f"the segment with this base offset is missing in {log.path}",
                topic=tp.topic,
                partition=tp.partition,
                offset=missing[0],
                remedy="Restore it, or set failOnDataLoss to false to read the others",
            )
        return log

    # ---- tasks ----

    def tasks(self, ranges: list[OffsetRange]) -> list[SegmentRange]:
        """The ranges as byte ranges of about the same size."""
        options = self._options
        parts = [part for each in ranges if each.size for part in self._parts(each)]
        total = sum(part.end - part.start for part in parts)
        most = TASK_BYTES
        if options.min_partitions is not None:
            most = max(min(most, -(-total // options.min_partitions)), 1)
        return [
            task
            for each in split(ranges, None, options.max_records_per_partition)
            for task in self._packed(each, most)
        ]

    def _packed(self, whole: OffsetRange, most: int) -> Iterator[SegmentRange]:
        """Combine slices up to `most` bytes, and split larger ones."""
        log = self._log(TopicPartition(whole.topic, whole.partition))
        start, size, chosen = whole.start, 0, list[SegmentSlice]()
        for each in (cut for part in self._parts(whole) for cut in self._cut(log, part, most)):
            length = each.end - each.start
            if chosen and size + length > most:
                yield self._task(log, whole, start, each.first_offset, chosen)
                start, size, chosen = each.first_offset, 0, []
            chosen.append(each)
            size += length
        if chosen:
            yield self._task(log, whole, start, whole.end, chosen)

    def _task(
        self, log: Log, whole: OffsetRange, start: int, end: int, slices: list[SegmentSlice]
    ) -> SegmentRange:
        aborted = tuple(log.aborted_transactions(start, end)) if self._committed else None
        return SegmentRange(
            whole.topic, whole.partition, start, end, -1, -1, whole.topic_id, tuple(slices), aborted
        )

    def _parts(self, wanted: OffsetRange) -> list[SegmentSlice]:
        """For each segment, the bytes that the range needs."""
        log = self._log(TopicPartition(wanted.topic, wanted.partition))
        found = []
        for segment in log.segments:
            outside = segment.next_offset <= wanted.start or segment.base_offset >= wanted.end
            if outside or not segment.size_bytes:
                continue
            offsets, positions = self._index(log, segment)
            first = max(bisect_right(offsets, wanted.start) - 1, 0)
            last = bisect_left(offsets, wanted.end)
            end = positions[last] if last < len(positions) else segment.size_bytes
            size = segment.size_bytes if segment.sealed else -1
            bound = offsets[last] if last < len(positions) else segment.next_offset
            path = os.path.abspath(segment.path)
            found.append(SegmentSlice(path, positions[first], end, offsets[first], size, bound))
        return found

    def _cut(self, log: Log, whole: SegmentSlice, most: int) -> Iterator[SegmentSlice]:
        """Split a slice into pieces of at most this number of bytes, at batches that the index
        knows.
        """
        left = whole
        if left.end - left.start > most:
            segment = next(s for s in log.segments if os.path.abspath(s.path) == left.path)
            offsets, positions = self._index(log, segment)
        while left.end - left.start > most:
            next_one = bisect_right(positions, left.start)
            at = max(bisect_right(positions, left.start + most) - 1, next_one)
            if at >= len(positions) or positions[at] >= left.end:
                break
            yield replace(left, end=positions[at], next_offset=offsets[at])
            left = replace(left, start=positions[at], first_offset=offsets[at])
        yield left

    def _index(self, log: Log, segment: LogSegment) -> tuple[list[int], list[int]]:
        """Offsets and positions of the batches in the index, from the segment's start."""
        entries = {0: segment.base_offset} | {
            position: offset for offset, position, _ in segment.index_entries()
        }
        index = self._dir.index
        packed = index.pages(log.name, segment.base_offset) if index is not None else b""
        for at in range(0, len(packed), ENTRY_BYTES):
            delta = int.from_bytes(packed[at : at + 4], "little")
            position = int.from_bytes(packed[at + 4 : at + 8], "little")
            entries[position] = segment.base_offset + delta
        positions = sorted(p for p in entries if p < segment.size_bytes)
        return [entries[p] for p in positions], positions


def _names(partitions: list[TopicPartition]) -> str:
    topics = sorted({tp.topic for tp in partitions})
    shown = ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "")
    return shown or "none"
