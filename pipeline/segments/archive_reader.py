"""Reads an archive of `kstore pipeline archive`: converts its Parquet row groups to records in the
requested schema. It needs no Spark, and ignores runs that did not finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kstore.clients.io.list_offsets import FoundOffset
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.planning import split
from kstore.pipeline.ranges import OffsetRange
from kstore.pipeline.read_options import EARLIEST, ReadOptions
from kstore.pipeline.segments.footers import spans
from kstore.pipeline.segments.slices import (
    check_version,
    missing_records,
    reading,
    slice_rows,
)
from kstore.pipeline.topic_client import Life, TopicClient
from kstore.record.column_decoder import MAX_BATCH_ROWS
from kstore.types import TopicPartition

__all__ = ["ArchiveRange", "ArchiveTopics", "read_archive"]

_MAX_MILLIS = (2**63 - 1) // 1000
GROWTH = 8
NO_END = 2**63 - 1
"""The end of times, which is exclusive; with this value there is no end."""
_SLICE_COLUMNS = (
    "topic", "topic_id", "partition", "start", "end", "records", "partition_epoch", "version",
)  # fmt: skip


@dataclass(frozen=True)
class ArchiveRange(OffsetRange):
    """An offset range, and the row groups with its records: (file, numbers)."""

    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class _Group:
    """A row group, with its partitions, offsets and times (ms) from its statistics: the smallest
    and the largest of each.
    """

    path: str
    number: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]
    times: tuple[int, int]


class ArchiveTopics(TopicClient):
    """Answers the questions of a read from an archive's files instead of from brokers."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        super().__init__(options)
        self._path = path
        self._slices: dict[TopicPartition, list[dict[str, Any]]] = {}
        self._archived: Counter[tuple[str, str]] = Counter()
        """The records of each run and topic."""
        self._groups_of: dict[str, list[_Group]] = {}
        rows = slice_rows(path, _SLICE_COLUMNS) or []
        check_version(path, rows)
        for row in rows:
            self._slices.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row)
            self._archived[row["run"], row["topic"]] += row["records"]

    def close(self) -> None:
        """Does nothing: no file is open."""

    def partitions(self) -> dict[TopicPartition, Life]:
        """The selected partitions in the archive."""
        selection = self._options.selection
        named = {*selection.partitions, *selection.topics}
        found = sorted(
            tp
            for tp in self._slices
            if (selection.pattern and selection.matches(tp.topic))
            or tp in named
            or tp.topic in named
        )
        missing = named - {*found, *(tp.topic for tp in found)}
        if missing or not found:
            topics = ", ".join(sorted({tp.topic for tp in self._slices})) or "nothing"
            raise PipelineError(
                f"archive {self._path} does not have {', '.join(map(str, missing)) or selection}",
                remedy=f"It has {topics}",
            )
        return {tp: self._life(tp) for tp in found}

    def _life(self, tp: TopicPartition) -> Life:
        last = self._slices[tp][-1]
        return Life(last["partition_epoch"], topic_id=last["topic_id"])

    def offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """A FoundOffset for each timestamp in ms, EARLIEST or LATEST."""
        return {tp: self._offset(tp, timestamp) for tp, timestamp in timestamps.items()}

    def _offset(self, tp: TopicPartition, timestamp: int) -> FoundOffset:
        rows = self._slices[tp]
        if timestamp == EARLIEST:
            return FoundOffset(min(row["start"] for row in rows), -1, -1, -1)
        if timestamp < 0:
            return FoundOffset(max(row["end"] for row in rows), -1, -1, -1)
        found = [self._first_since(group, tp, timestamp) for group in self._groups(tp)]
        return FoundOffset(min((f for f in found if f >= 0), default=-1), -1, -1, -1)

    def _first_since(self, group: _Group, tp: TopicPartition, timestamp: int) -> int:
        """The first offset of a row group with a record at or after a time; -1 if there is none."""
        if group.times[1] < timestamp:
            return -1
        columns = ["partition", "offset", "timestampMillis"]
        table = pq.ParquetFile(group.path).read_row_group(group.number, columns=columns)
        late = pc.greater_equal(table["timestampMillis"], timestamp)
        mine = pc.equal(table["partition"], tp.partition)
        first = pc.min(table.filter(pc.and_(late, mine))["offset"]).as_py()
        return -1 if first is None else int(first)

    # ---- tasks ----

    def tasks(
        self, ranges: list[OffsetRange], times: tuple[int, int] | None = None
    ) -> list[ArchiveRange]:
        """The ranges with their row groups; only those with some of `times`."""
        options = self._options
        cut = split(ranges, options.min_partitions, options.max_records_per_partition)
        return [self._task(each, times) for each in cut]

    def _task(self, wanted: OffsetRange, times: tuple[int, int] | None) -> ArchiveRange:
        by_file: dict[str, list[int]] = {}
        for group in self._groups(TopicPartition(wanted.topic, wanted.partition)):
            if times is not None and not _may_have(group.times, times):
                continue
            if group.offsets[0] < wanted.end and group.offsets[1] >= wanted.start:
                by_file.setdefault(group.path, []).append(group.number)
        return ArchiveRange(
            wanted.topic, wanted.partition, wanted.start, wanted.end, -1,
            wanted.partition_epoch, wanted.topic_id,
            tuple((path, tuple(numbers)) for path, numbers in by_file.items()),
        )  # fmt: skip

    def _groups(self, tp: TopicPartition) -> list[_Group]:
        """The row groups that may have records of a partition."""
        if tp.topic not in self._groups_of:
            self._groups_of[tp.topic] = [
                group
                for (run, topic), archived in self._archived.items()
                if topic == tp.topic
                for group in self._of_run(run, tp, archived)
            ]
        low_high = (group for group in self._groups_of[tp.topic])
        return [g for g in low_high if g.partitions[0] <= tp.partition <= g.partitions[1]]

    def _of_run(self, run: str, tp: TopicPartition, archived: int) -> Iterator[_Group]:
        """The row groups of a topic's files from their footers. Raises PipelineError if they do not
        have all records.
        """
        there = 0
        folder = Path(self._path, "data", f"run={run}", "entry=record", f"topic={tp.topic}")
        for file in sorted(folder.glob("date=*/*.parquet")):
            path = str(file.absolute())
            with reading(path, tp):
                meta = pq.ParquetFile(path).metadata
            there += meta.num_rows
            for number, found in enumerate(spans(meta, ("partition", "offset", "timestampMillis"))):
                yield _Group(path, number, *found)
        if there != archived:
            raise missing_records(self._path, run, tp.topic, there, archived)


def _may_have(values: tuple[int, int], times: tuple[int, int]) -> bool:
    first, end = times
    return values[1] >= first and (values[0] < end or end == NO_END)


def read_archive(
    wanted: OffsetRange,
    schema: Any,
    *,
    times: tuple[int, int] | None = None,
    max_rows: int = MAX_BATCH_ROWS,
) -> Iterator[Any]:
    """The records of a range as Arrow batches in ``schema``, those from the first to below the
    second of ``times``, in ms. Missing headers are null as in Spark's connector, if the schema
    allows null. Raises PipelineError.
    """
    assert isinstance(wanted, ArchiveRange)
    stored = {"timestamp": "timestampMillis"}
    needed = {stored.get(name, name) for name in schema.names if name != "topic"}
    needed |= {"partition", "offset", *(["timestampMillis"] if times else [])}
    tp = TopicPartition(wanted.topic, wanted.partition)
    size = max_rows
    for path, numbers in wanted.groups:
        with reading(path, tp, wanted.start), pq.ParquetFile(path) as file:
            for number in numbers:
                rows = _Rows(file, number, sorted(needed), size)
                for batch in rows.batches():
                    found = batch.filter(_mask(batch, wanted, times))
                    rows.found(found.num_rows)
                    for start in range(0, found.num_rows, max_rows):
                        yield _shown(found.slice(start, max_rows), schema, wanted)
                size = rows.size


class _Rows:
    """The rows of a row group, `size` at a time, for a reader of few rows. Most of them may belong
    to other partitions: while no row is wanted, the batches get larger.
    """

    def __init__(self, file: Any, number: int, columns: list[str], size: int) -> None:
        self.size = size
        self._file = file
        self._number = number
        self._columns = columns
        self._empty = 0

    def found(self, count: int) -> None:
        """How many of the last batch's rows are wanted."""
        self._empty = 0 if count else self._empty + 1

    def batches(self) -> Iterator[Any]:
        """All rows in order."""
        done = 0
        while True:
            at, began = 0, self.size
            for batch in self._file.iter_batches(
                began, row_groups=[self._number], columns=self._columns
            ):
                at += batch.num_rows
                if at <= done:
                    continue  # decoded again, with the larger size
                yield batch.slice(max(batch.num_rows - (at - done), 0))
                done = at
                if self._empty and self.size < MAX_BATCH_ROWS and self._empty * began * 2 > done:
                    self.size = min(self.size * GROWTH, MAX_BATCH_ROWS)
                    break
            if self.size == began:
                return


def _mask(batch: Any, wanted: OffsetRange, times: tuple[int, int] | None) -> Any:
    inside = _within(batch.column("offset"), wanted.start, wanted.end)
    if times is not None:
        inside = pc.and_(inside, _within(batch.column("timestampMillis"), *times))
    return pc.and_(inside, pc.equal(batch.column("partition"), wanted.partition))


def _within(column: Any, start: int, end: int) -> Any:
    if end == NO_END:
        return pc.greater_equal(column, start)
    return pc.and_(pc.greater_equal(column, start), pc.less(column, end))


def _shown(batch: Any, schema: Any, wanted: OffsetRange) -> Any:
    """The requested columns from archived ones."""
    arrays = [_column(batch, field, wanted) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(batch: Any, field: Any, wanted: OffsetRange) -> Any:
    if field.name == "topic":
        return pa.repeat(pa.scalar(wanted.topic, field.type), batch.num_rows)
    if field.name == "timestamp":
        return _times(batch, field.type, wanted)
    found = batch.column(field.name)
    if field.name == "headers" and not field.nullable:
        found = pc.if_else(pc.is_valid(found), found, pa.scalar([], found.type))
    elif field.name == "headers":
        empty = pc.equal(pc.list_value_length(found), 0)
        found = pc.if_else(pc.fill_null(empty, True), pa.scalar(None, found.type), found)
    if field.type == pa.string():
        return found.view(field.type)  # a cast would refuse invalid UTF-8
    return found.cast(field.type)


def _times(batch: Any, arrow_type: Any, wanted: OffsetRange) -> Any:
    """Kafka's milliseconds unchanged, or as microseconds."""
    millis = batch.column("timestampMillis")
    if arrow_type.unit == "ms":
        return millis.cast(arrow_type)
    try:
        return pc.multiply_checked(millis, 1000).cast(arrow_type)
    except pa.ArrowInvalid as error:
        high = pc.greater(pc.abs(millis), _MAX_MILLIS)
        raise PipelineError(
            "a timestamp is too large in microseconds",
            topic=wanted.topic,
            partition=wanted.partition,
            offset=batch.column("offset").filter(high)[0].as_py(),
            remedy="Select the columns that you need, without timestamp, with .schema(..)",
        ) from error
