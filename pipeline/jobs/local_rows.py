"""Reads the entries of an archive in this process, without Spark; layout.py describes the layout.
Spark and local_files.py sort each row group by partition and offset.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kstore.pipeline.jobs.scans.entries import ENTRY_SCHEMA
from kstore.pipeline.segments.footers import spans
from kstore.pipeline.segments.slices import reading

__all__ = ["OrderedRows", "entry_batches", "stored_records"]

ROWS = 16_384
STREAMED_ROWS = 4096
"""The most rows that are decoded at once: equal values are small only while they are encoded."""
PIECE_BYTES = 4 << 20
WHOLE_BYTES = 64 << 20
"""A larger row group is decoded in pieces, once for each of its partitions."""
KEPT_BYTES = 128 << 20
"""The limit of row groups in memory: each is read once for each of its partitions."""
MERGED_BYTES = 64 << 20
"""The limit of rows that are sorted together. Arrow can't sort more than 2 GB."""


def entry_batches(
    path: str,
    runs: Iterable[str],
    kinds: Sequence[str],
    topics: Iterable[str] | None = None,
    offsets: Mapping[tuple[str, int], tuple[int, int]] | None = None,
) -> Iterator[Any]:
    """The entries of these kinds of these runs as RecordBatches in ENTRY_SCHEMA, not sorted
    by date. With `offsets`, row groups without any of these partitions and offsets are skipped.
    Raises PipelineError.
    """
    names = None if topics is None else set(topics)
    for run in sorted(set(runs)):
        for kind in kinds:
            for file in _files(path, run, kind, names):
                groups = [each for each in _groups(file) if _is_wanted(each, offsets)]
                for group in groups:
                    for batch in group.batches():
                        yield file.whole(batch)


def stored_records(path: str, run: str, topic: str | None = None) -> int:
    """The number of records of a topic, or of all topics, in the files of a run, by their footers.
    Raises PipelineError.
    """
    files = _files(path, run, "record", None if topic is None else {topic})
    return sum(_opened(file.path).metadata.num_rows for file in files)


@dataclass(frozen=True)
class _File:
    """One file, and the values that are only in the names of its folders."""

    path: str
    entry: str
    topic: str
    date: str

    def whole(self, batch: Any) -> Any:
        """The rows in ENTRY_SCHEMA."""
        named = {"entry": self.entry, "topic": self.topic, "date": self.date}
        columns = [
            pa.repeat(pa.scalar(named[field.name]), batch.num_rows)
            if field.name in named
            else batch.column(field.name).cast(field.type)
            for field in ENTRY_SCHEMA
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


@dataclass(frozen=True)
class _Group:
    """A row group, with the smallest and largest partition and offset of its statistics."""

    file: _File
    number: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]

    def table(self, columns: list[str]) -> Any:
        """These columns of its rows."""
        with reading(self.file.path):
            return pq.ParquetFile(self.file.path).read_row_group(self.number, columns)

    def batches(self) -> Iterator[Any]:
        """Its rows in small batches."""
        with reading(self.file.path), pq.ParquetFile(self.file.path, buffer_size=1 << 20) as file:
            meta = file.metadata.row_group(self.number)
            rows = PIECE_BYTES * meta.num_rows // max(meta.total_byte_size, 1)
            rows = max(1, min(rows, STREAMED_ROWS))
            yield from file.iter_batches(rows, row_groups=[self.number])


_Span = tuple[int, int, _Group]
"""A partition's first and last offset in a row group."""


def _opened(path: str) -> Any:
    with reading(path):
        return pq.ParquetFile(path)


def _files(path: str, run: str, kind: str, topics: set[str] | None) -> Iterator[_File]:
    folder = Path(path, "data", f"run={run}", f"entry={kind}")
    for file in sorted(folder.glob("topic=*/date=*/*.parquet")):
        topic, date = (part.name.partition("=")[2] for part in (file.parents[1], file.parent))
        if topics is None or topic in topics:
            yield _File(str(file), kind, topic, date)


def _groups(file: _File) -> Iterator[_Group]:
    found = spans(_opened(file.path).metadata, ("partition", "offset"))
    for number, (partitions, offsets) in enumerate(found):
        yield _Group(file, number, partitions, offsets)


def _is_wanted(group: _Group, offsets: Mapping[tuple[str, int], tuple[int, int]] | None) -> bool:
    return offsets is None or any(
        topic == group.file.topic
        and group.partitions[0] <= partition <= group.partitions[1]
        and start <= group.offsets[1]
        and end > group.offsets[0]
        for (topic, partition), (start, end) in offsets.items()
    )


class OrderedRows:
    """The records of an archive's partitions in the order of their offsets. It keeps only row
    groups with overlapping offsets in memory, and only pieces of large ones.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._large: set[tuple[str, int]] = set()
        self._spans: dict[tuple[str, str], dict[int, list[_Span]]] = {}

    def read(self, run: str, topic: str, partition: int) -> Iterator[Any]:
        """A run's records of a partition, as RecordBatches. Raises PipelineError."""
        spans = self._of_topic(run, topic).get(partition, [])
        return _merged(spans, lambda group: self._pieces(group, partition))

    def _of_topic(self, run: str, topic: str) -> dict[int, list[_Span]]:
        """By partition, the row groups with its first and last offset in each."""
        at = run, topic
        if at not in self._spans:
            found: dict[int, list[_Span]] = {}
            for file in _files(self._path, run, "record", {topic}):
                for group in _groups(file):
                    for partition, first, last in _extents(group):
                        found.setdefault(partition, []).append((first, last, group))
            self._spans[at] = found
        return self._spans[at]

    def _pieces(self, group: _Group, partition: int) -> Iterator[Any]:
        """A partition's rows of a row group, as small RecordBatches."""
        table = self._table(group)
        for batch in group.batches() if table is None else table.to_batches():
            mine = batch
            if group.partitions != (partition, partition):
                mine = batch.filter(pc.equal(batch.column("partition"), partition))
            yield from _cut(mine)

    def _table(self, group: _Group) -> Any:
        """The rows of a group; those read last stay in memory. None if there are too many."""
        at = group.file.path, group.number
        if at in self._large:
            return None
        found = self._kept.pop(at, None)
        if found is None:
            found = _whole(group)
        if found is None:
            self._large.add(at)
            return None
        self._kept[at] = found
        while sum(table.nbytes for table in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)
        return found


def _whole(group: _Group) -> Any:
    """The rows of a group as a table; None if it would be large. Only reading shows that: the
    footer has the size of encoded values, and equal values are encoded once.
    """
    batches, size = [], 0
    for batch in group.batches():
        batches.append(batch)
        size += batch.nbytes
        if size > WHOLE_BYTES:
            return None
    return pa.Table.from_batches(batches) if batches else None


def _cut(batch: Any) -> Iterator[Any]:
    rows = ROWS
    if batch.nbytes > PIECE_BYTES:
        rows = min(rows, max(1, batch.num_rows * PIECE_BYTES // batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


class _Cursor:
    """A place in the rows of one row group."""

    def __init__(self, pieces: Iterator[Any]) -> None:
        self._pieces = pieces
        self._advance()

    def _advance(self) -> None:
        self._batch: Any = next(self._pieces, None)
        self.is_at_end = self._batch is None
        if self._batch is not None:
            self._offsets = self._batch.column("offset").to_numpy()
            self.first, self.last = int(self._offsets[0]), int(self._offsets[-1])

    def until(self, limit: int) -> Any:
        """The rows of the current piece with offsets up to `limit`."""
        return self._batch.slice(0, int(np.searchsorted(self._offsets, limit, "right")))

    def take(self, limit: int) -> Any:
        """Return the same rows, and advance after them."""
        taken = self.until(limit)
        if taken.num_rows == len(self._offsets):
            self._advance()
        else:
            self._batch = self._batch.slice(taken.num_rows)
            self._offsets = self._offsets[taken.num_rows :]
            self.first = int(self._offsets[0])
        return taken


def _merged(spans: Iterable[_Span], pieces: Callable[[_Group], Iterator[Any]]) -> Iterator[Any]:
    """The rows of row groups in the order of their offsets. Groups overlap if the dates of records
    do not increase with the offsets.
    """
    waiting = deque(sorted(spans, key=lambda span: span[:2]))
    cursors: list[_Cursor] = []
    while waiting or cursors:
        while waiting and all(waiting[0][0] <= each.last for each in cursors):
            cursors.append(_Cursor(pieces(waiting.popleft()[2])))
        limit = _limit(cursors)
        parts = [each.take(limit) for each in cursors if each.first <= limit]
        cursors = [each for each in cursors if not each.is_at_end]
        if len(parts) == 1:
            yield parts[0]
        else:
            yield from pa.Table.from_batches(parts).sort_by("offset").to_batches(ROWS)


def _limit(cursors: Sequence[_Cursor]) -> int:
    """The offset up to which the current pieces are complete, and not too large to be sorted."""
    limit = min(each.last for each in cursors)
    first = min(each.first for each in cursors)
    if len(cursors) > 1:
        while limit > first and sum(each.until(limit).nbytes for each in cursors) > MERGED_BYTES:
            limit = (first + limit) // 2
    return limit


def _extents(group: _Group) -> list[tuple[int, int, int]]:
    """Each partition of a row group with its first and its last offset there."""
    table = group.table(["partition", "offset"])
    partitions, offsets = (table[n].to_numpy() for n in ("partition", "offset"))
    return [
        (int(number), int(mine.min()), int(mine.max()))
        for number in np.unique(partitions)
        for mine in [offsets[partitions == number]]
    ]
