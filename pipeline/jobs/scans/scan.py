"""Reads partitions of a cluster on Spark's executors: a list of offset ranges becomes a DataFrame
of entries (see entries.py), one task per range. The jobs use the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kstore.pipeline.errors import PipelineError
from kstore.pipeline.jobs.scans.brokers import Brokers
from kstore.pipeline.jobs.scans.entries import (
    BLOCK,
    Chunk,
    blocks_of,
    content_hashes,
    decode_chunk,
    entry_batch,
    placed_hashes,
    spark_schema,
    times_of,
)
from kstore.record import InvalidBatchError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Range", "Scan", "scan", "split"]

ROWS = 16_384
"""The maximum number of records of an Arrow batch for Spark."""


@dataclass(frozen=True)
class Range:
    """Offsets `start` to below `end` of one partition: the work of one task. `zone` is added to the
    `kind` of its blocks.
    """

    topic: str
    partition: int
    start: int
    end: int
    zone: str | None = None

    @property
    def size(self) -> int:
        """The number of offsets, which may be more than records."""
        return max(self.end - self.start, 0)


def split(ranges: Iterable[Range], tasks: int) -> list[Range]:
    """Ranges of about equal size, `tasks` of them or slightly more, cut at block boundaries."""
    ranges = [each for each in ranges if each.size]
    total = sum(each.size for each in ranges)
    step = max(total // max(tasks, 1), BLOCK)
    step += -step % BLOCK
    found = []
    for each in ranges:
        start = each.start
        while start < each.end:
            end = min((start // BLOCK) * BLOCK + step, each.end)
            found.append(replace(each, start=start, end=end))
            start = end
    return found


@dataclass(frozen=True)
class Scan:
    """What the executors receive. `wanted` are the entries to make: record, hole, block, fault.

    With `tolerant` a damaged batch is a fault entry; otherwise it fails the job.
    """

    settings: Mapping[str, Any]
    wanted: frozenset[str] = frozenset({"record", "hole", "block"})
    read_committed: bool = True
    tolerant: bool = False
    hourly: bool = False
    ranges: Sequence[Range] = field(default_factory=tuple)

    def spark_schema(self) -> Any:
        """The columns of the entries, for Spark."""
        return spark_schema()

    def __call__(self, tasks: Iterator[Any]) -> Iterator[Any]:
        """A function for Spark's `mapInArrow` over the numbers of ranges."""
        for batch in tasks:
            for number in batch.column(0).to_pylist():
                yield from self.read(self.ranges[number])

    def read(self, part: Range) -> Iterator[Any]:
        """The entries of one range as RecordBatches in ENTRY_SCHEMA."""
        tp = TopicPartition(part.topic, part.partition)
        with Brokers(self.settings, read_committed=self.read_committed) as brokers:
            position = part.start
            for came in brokers.read(tp, part.start, part.end):
                try:
                    chunk = decode_chunk(
                        came.data, position, part.end, came.aborted, tolerant=self.tolerant
                    )
                except InvalidBatchError as error:
                    raise PipelineError(
                        f"the broker sent a damaged batch ({error})",
                        topic=part.topic,
                        partition=part.partition,
                        offset=position,
                        remedy="`kstore log verify` on its log dir names the file; `kstore "
                        "pipeline verify` finds all such places",
                    ) from error
                yield from self._entries(part, position, chunk)
                position = chunk.next_offset

    def _entries(self, part: Range, start: int, chunk: Chunk) -> Iterator[Any]:
        rows = chunk.rows
        if "record" in self.wanted:
            yield from self._records(part, rows)
        if "block" in self.wanted:
            yield from _blocks(part, rows)
        if "hole" in self.wanted and chunk.holes:
            yield _spans("hole", part, chunk.holes)
        if "fault" in self.wanted and chunk.faults:
            yield _spans("fault", part, chunk.faults)

    def _records(self, part: Range, rows: Any) -> Iterator[Any]:
        for first in range(0, rows.num_rows, ROWS):
            piece = rows.slice(first, ROWS)
            times, dates = times_of(piece.column("timestampMillis"), hourly=self.hourly)
            columns = {name: piece.column(name) for name in piece.schema.names}
            columns["timestamp"] = times
            columns["partition"] = _repeat(part.partition, piece.num_rows)
            yield entry_batch("record", part.topic, columns, dates)


def _repeat(number: int, count: int) -> Any:
    return pa.array(np.full(count, number, np.int32))


def _blocks(part: Range, rows: Any) -> Iterator[Any]:
    """An entry per run of a block's records; it has the last record's leader epoch."""
    offsets = rows.column("offset").to_numpy(zero_copy_only=False)
    found = blocks_of(offsets, placed_hashes(content_hashes(rows), offsets))
    if not found:
        return
    ends = np.cumsum([records for _, records, _ in found])
    epochs = rows.column("leaderEpoch").to_numpy(zero_copy_only=False)
    yield entry_batch(
        "block",
        part.topic,
        {
            "partition": _repeat(part.partition, len(found)),
            "offset": offsets[np.concatenate(([0], ends[:-1]))],
            "endOffset": offsets[ends - 1] + 1,
            "leaderEpoch": epochs[ends - 1],
            "kind": pa.array([part.zone] * len(found), pa.string()),
            "records": [records for _, records, _ in found],
            "digest": [digest for _, _, digest in found],
        },
    )


def _spans(entry: str, part: Range, spans: Sequence[tuple[int, int, str]]) -> Any:
    starts, ends, kinds = zip(*spans, strict=True)
    columns = {
        "partition": _repeat(part.partition, len(spans)),
        "offset": list(starts),
        "endOffset": list(ends),
        "kind": list(kinds),
    }
    return entry_batch(entry, part.topic, columns)


def scan(spark: SparkSession, plan: Scan, ranges: Sequence[Range]) -> DataFrame:
    """The entries of the ranges, one task each."""
    numbers = spark.range(0, len(ranges), 1, max(len(ranges), 1))
    return numbers.mapInArrow(replace(plan, ranges=tuple(ranges)), plan.spark_schema())
