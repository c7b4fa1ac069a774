"""The streaming read through brokers: the driver decides here what each micro-batch reads;
executors read it like a batch.

The checkpoint's positions are compared with the cluster each time: the topic may have been created
again, records may have been deleted, a log may have been truncated below a position. New partitions
are added automatically; those of an ordered expansion (KIP-253) only after their prior partitions
were read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kstore.clients.io.list_offsets import FoundOffset
from kstore.pipeline.errors import PipelineError, message_first
from kstore.pipeline.expansion import Expansion
from kstore.pipeline.planning import rate_limited, split
from kstore.pipeline.positions import Position, Positions
from kstore.pipeline.ranges import OffsetRange
from kstore.pipeline.read_options import EARLIEST, LATEST, read_options
from kstore.pipeline.schema import checked_columns
from kstore.pipeline.topic_client import Life, TopicClient
from kstore.pipeline.worker_process import keep_memory, spare_imports
from kstore.types import TopicPartition

__all__ = ["StreamReader"]

_RECREATED = (
    "Give the query a new checkpointLocation, or set option kstore.recreatedTopics to restart: it"
    " then reads the new topic from its beginning"
)
_LOST = (
    "Set failOnDataLoss to false to continue with the records that exist, or give the query a new"
    " checkpointLocation"
)


@message_first
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of records. Spark creates one object on the driver, and sends unused copies of
    it to executors.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = read_options(options, streaming=True)
        self._columns = checked_columns(schema, include_headers=self._options.include_headers)
        self._client = TopicClient(self._options)
        self._expansion = Expansion(self._client)
        self._ends_now = False
        self._target: dict[TopicPartition, Position] | None = None
        """With Trigger.AvailableNow: the end of the query."""
        self._latest: Positions | None = None
        self._planned: dict[str, Any] | None = None
        self._last_batch_s = float("-inf")

    # ---- called by Spark ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a query without a checkpoint."""
        lives = self._client.partitions()
        starts = self._client.resolve(self._options.starting, lives, is_start=True)
        rows = {tp: Position(starts[tp], life) for tp, life in lives.items()}
        return Positions(rows, is_initial=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger; latestOffset also checks the minimum."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query at the offsets of the first latestOffset."""
        self._ends_now = True

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """The end of the next micro-batch; ``start`` if there is nothing to read yet."""
        before = Positions.from_json(start)
        lives, ends_now = self._lives(before)
        latest, cut = self._ends(before, lives, ends_now)
        self._latest = Positions({tp: Position(row.offset, row.life) for tp, row in latest.items()})
        begin = self._begins(before, latest, cut)
        ends = self._held_back(before, begin, {tp: row.offset for tp, row in latest.items()})
        begin = {tp: offset for tp, offset in begin.items() if tp in ends}
        ends = self._limited(begin, ends, limit)
        moved = {
            tp for tp, offset in begin.items()
            if before.is_initial or tp not in before or offset != before[tp].offset
        }  # fmt: skip
        has_new = any(ends[tp] > offset for tp, offset in begin.items())
        if not has_new and (before.is_initial or not moved & before.keys()):
            return start
        self._last_batch_s = time.monotonic()
        found = Positions()
        for tp, end in ends.items():
            is_read = end > begin[tp] or tp in moved
            life = latest[tp].life if is_read else before[tp].life
            found[tp] = Position(max(end, begin[tp]), life, begin[tp] if tp in moved else None)
        self._planned = found.to_json()
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The partitions' ends at the last latestOffset, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of the micro-batch between two positions."""
        before, after = Positions.from_json(start), Positions.from_json(end)
        if end != self._planned:  # from an earlier run of the query
            self._check_lives(after, self._fresh(after)[0])
        ranges = []
        for tp in sorted(after):
            row, old = after[tp], before.get(tp)
            begin = (
                row.begin if row.begin is not None else row.offset if old is None else old.offset
            )
            life = row.life
            ranges.append(
                OffsetRange(
                    tp.topic,
                    tp.partition,
                    begin,
                    row.offset,
                    -1,
                    life.partition_epoch,
                    life.topic_id,
                )
            )
        options = self._options
        found = split(ranges, options.min_partitions, options.max_records_per_partition)
        return [InputPartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One range's records as Arrow batches; in an executor."""
        wanted = partition.value
        assert isinstance(wanted, OffsetRange)
        from kstore.pipeline.arrow import arrow_decoding
        from kstore.pipeline.fetching import read_range

        keep_memory()
        spare_imports()
        yield from read_range(wanted, self._options, arrow_decoding(self._columns))

    def stop(self) -> None:
        """The query has stopped."""
        self._client.close()

    # ---- partitions ----

    def _fresh(
        self, seen: Mapping[TopicPartition, Position]
    ) -> tuple[dict[TopicPartition, Life], dict[TopicPartition, FoundOffset]]:
        """The partitions by metadata that is not older than the checkpoint, if available; and their
        ends, if nothing has changed.
        """
        for tries in range(self._options.retries):
            lives, ends = self._client.partitions_with_ends()
            if not any(lives[tp].is_older_than(seen[tp].life) for tp in lives.keys() & seen.keys()):
                break
            if tries + 1 < self._options.retries:
                time.sleep(self._options.retry_interval_ms / 1000)
        return lives, ends

    def _lives(
        self, before: Positions
    ) -> tuple[dict[TopicPartition, Life], dict[TopicPartition, FoundOffset]]:
        """The partitions to read; those of the checkpoint must still exist. See `_fresh`."""
        lives, ends = self._fresh(before)
        self._check_lives(before, lives)
        gone = before.keys() - lives.keys()
        if gone:
            tp = min(gone)
            self._lost(
                tp, before[tp].offset, "the partition does not exist any more: was it deleted?"
            )
        return lives, ends

    def _check_lives(
        self, positions: Mapping[TopicPartition, Position], lives: Mapping[TopicPartition, Life]
    ) -> None:
        """Check topics that were deleted and created again: the new topic is never read as if it
        were the old one.
        """
        for tp, row in sorted(positions.items()):
            if tp not in lives or not lives[tp].is_another(row.life):
                continue
            if not self._options.restarts_recreated:
                raise PipelineError(
                    "the topic was deleted and created again since the checkpoint was written"
                    f" (there: {_shown_life(row.life)}, now: {_shown_life(lives[tp])})",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=row.offset,
                    remedy=_RECREATED,
                )

    # ---- starts and ends ----

    def _ends(
        self,
        before: Positions,
        lives: Mapping[TopicPartition, Life],
        found: Mapping[TopicPartition, FoundOffset],
    ) -> tuple[dict[TopicPartition, Position], dict[TopicPartition, int]]:
        """The partitions' ends, with the leader's log; and where to continue in partitions whose
        log does not contain what was read. ``found`` are the ends, if they are known.
        """
        if self._target is not None:
            return self._target, {}
        for tries in range(self._options.retries):
            found = found or self._client.offsets(dict.fromkeys(lives, LATEST))
            ends = {
                tp: Position(row.offset, lives[tp]._replace(leader_epoch=row.leader_epoch))
                for tp, row in found.items()
            }
            cut = self._cut(before, ends)
            if not cut or tries + 1 == self._options.retries:
                break
            # A leader that has just changed may not know its high watermark yet.
            time.sleep(self._options.retry_interval_ms / 1000)
            found = {}
        for tp, end in cut.items():
            self._lost(
                tp,
                before[tp].offset,
                f"the query has read up to this offset, but the log ends at {end} now: records were"
                " lost, or the log was replaced",
            )
        if self._ends_now:
            self._target = ends
        return ends, cut

    def _cut(
        self, before: Positions, ends: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int]:
        """The logs that end below the position, or have diverged from what was read (KIP-320): the
        end of the common part.
        """
        same = {
            tp: row
            for tp, row in before.items()
            if tp in ends and not ends[tp].life.is_another(row.life)
        }
        cut = {tp: ends[tp].offset for tp, row in same.items() if ends[tp].offset < row.offset}
        epochs = {
            tp: row.life.leader_epoch
            for tp, row in same.items()
            if -1 < row.life.leader_epoch < ends[tp].life.leader_epoch
        }
        for tp, end in self._client.epoch_ends(epochs).items():
            if end.end_offset < before[tp].offset:
                cut[tp] = min(end.end_offset, cut.get(tp, end.end_offset))
        return cut

    def _begins(
        self,
        before: Positions,
        ends: Mapping[TopicPartition, Position],
        cut: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The start of the micro-batch in each partition: new partitions, and those of a topic that
        was created again, start at their beginning.
        """
        new = [
            tp for tp, row in ends.items()
            if tp not in before or row.life.is_another(before[tp].life)
        ]  # fmt: skip
        first = self._client.offsets(dict.fromkeys(new, EARLIEST))
        for tp in sorted(first):
            if tp not in before and first[tp].offset > 0:
                self._lost(
                    tp, 0, f"the partition is new, but its first offset is {first[tp].offset}"
                )
        return {
            tp: first[tp].offset if tp in first else cut.get(tp, before[tp].offset) for tp in ends
        }

    def _held_back(
        self,
        before: Positions,
        begin: Mapping[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Remove partitions that must wait for others (KIP-253)."""
        if not self._options.ordered_expansion:
            return ends
        held = self._expansion.held_back(begin, ends)
        return {
            tp: begin[tp] if tp in held else end
            for tp, end in ends.items()
            if tp not in held or tp in before
        }

    def _limited(
        self,
        begin: Mapping[TopicPartition, int],
        ends: dict[TopicPartition, int],
        limit: ReadLimit,
    ) -> dict[TopicPartition, int]:
        """The ends with maxOffsetsPerTrigger, or the starts with minOffsetsPerTrigger."""
        if isinstance(limit, ReadAllAvailable):
            return ends
        options = self._options
        if options.min_offsets is not None and not self._ends_now:
            waited_ms = (time.monotonic() - self._last_batch_s) * 1000
            new = sum(max(end - begin[tp], 0) for tp, end in ends.items())
            if new < options.min_offsets and waited_ms < options.max_delay_ms:
                return dict(begin)
        if options.max_offsets is not None:
            return rate_limited(begin, ends, options.max_offsets)
        return ends

    def _lost(self, tp: TopicPartition, offset: int, what: str) -> None:
        """Data was lost: raise an error, unless it is allowed."""
        problem = PipelineError(
            what, topic=tp.topic, partition=tp.partition, offset=offset, remedy=_LOST
        )
        if self._options.fail_on_data_loss:
            raise problem
        print(f"kstore: {problem}", file=sys.stderr)


def _shown_life(life: Life) -> str:
    """The partition's identity in an error message."""
    if life.partition_epoch >= 0:
        return f"partition epoch {life.partition_epoch}"
    return f"topic id {life.topic_id}"
