"""An archive's entries, read by this process without Spark; layout.py says how they lie. Spark and
local_files.py write them alike: each row group in the order of partitions and offsets.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.entries import ENTRY_SCHEMA

__all__ = ["OrderedRows", "entry_batches", "slice_rows", "stored_records"]

ROWS = 16_384
KEPT_BYTES = 256 << 20
"""Of row groups in memory, since each is asked for once for each of its partitions."""


def slice_rows(path: str) -> list[dict[str, Any]] | None:
    """The rows below slices/, with their runs; None if there is no such folder. Raises JobError."""
    folder = Path(path, "slices")
    if not folder.is_dir():
        return None
    found = []
    for of_run in sorted(folder.glob("run=*")):
        for file in sorted(of_run.glob("*.parquet")):
            rows = _opened(str(file)).read().to_pylist()
            found += [row | {"run": of_run.name.removeprefix("run=")} for row in rows]
    return found


def entry_batches(
    path: str,
    runs: Iterable[str],
    kinds: Sequence[str],
    topics: Iterable[str] | None = None,
    offsets: Mapping[tuple[str, int], tuple[int, int]] | None = None,
) -> Iterator[Any]:
    """The entries of these kinds of these runs as RecordBatches in ENTRY_SCHEMA, in no order of
    dates. With `offsets`, row groups without any of these partitions and offsets are left out.
    Raises JobError.
    """
    names = None if topics is None else set(topics)
    for run in sorted(set(runs)):
        for kind in kinds:
            for file in _files(path, run, kind, names):
                groups = [each for each in _groups(file) if _is_wanted(each, offsets)]
                for group in groups:
                    for batch in group.table().to_batches(ROWS):
                        yield file.whole(batch)


def stored_records(path: str, run: str, topic: str | None = None) -> int:
    """How many records of a topic, or of all, the files of a run have, by their footers. Raises
    JobError.
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
    """A row group, and the partitions and offsets that its statistics tell of."""

    file: _File
    number: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]

    def table(self, columns: list[str] | None = None) -> Any:
        """Its rows."""
        with _reading(self.file.path):
            return pq.ParquetFile(self.file.path).read_row_group(self.number, columns)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """An error of Arrow's or of the system leaves as JobError that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise JobError(
            f"archive file {os.path.abspath(path)} can't be read: {error}. Take it from a copy of "
            "the archive, or archive the topic again to another folder"
        ) from error


def _opened(path: str) -> Any:
    with _reading(path):
        return pq.ParquetFile(path)


def _files(path: str, run: str, kind: str, topics: set[str] | None) -> Iterator[_File]:
    folder = Path(path, "data", f"run={run}", f"entry={kind}")
    for file in sorted(folder.glob("topic=*/date=*/*.parquet")):
        topic, date = (part.name.partition("=")[2] for part in (file.parents[1], file.parent))
        if topics is None or topic in topics:
            yield _File(str(file), kind, topic, date)


def _groups(file: _File) -> Iterator[_Group]:
    meta = _opened(file.path).metadata
    place = {meta.schema.column(i).path: i for i in range(meta.num_columns)}
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        partition, offset = (group.column(place[n]).statistics for n in ("partition", "offset"))
        yield _Group(file, number, _span(partition), _span(offset))


def _span(statistics: Any) -> tuple[int, int]:
    """The smallest and the largest value."""
    if statistics is None or not statistics.has_min_max:
        return 0, 2**63 - 1
    return statistics.min, statistics.max


def _is_wanted(group: _Group, offsets: Mapping[tuple[str, int], tuple[int, int]] | None) -> bool:
    return offsets is None or any(
        topic == group.file.topic
        and group.partitions[0] <= partition <= group.partitions[1]
        and start <= group.offsets[1]
        and end > group.offsets[0]
        for (topic, partition), (start, end) in offsets.items()
    )


class OrderedRows:
    """The records of an archive's partitions in the order of their offsets."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._spans: dict[tuple[str, str], dict[int, list[tuple[int, int, _Group]]]] = {}

    def read(self, run: str, topic: str, partition: int) -> Iterator[Any]:
        """What a run has archived of a partition, as RecordBatches. Raises JobError."""
        spans = self._of_topic(run, topic).get(partition, [])
        for groups in _overlapping(spans):
            tables = [
                table.filter(pc.equal(table["partition"], partition))
                for table in map(self._table, groups)
            ]
            rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables).sort_by("offset")
            yield from rows.to_batches(ROWS)

    def _of_topic(self, run: str, topic: str) -> dict[int, list[tuple[int, int, _Group]]]:
        """By partition, the row groups with its first and last offset in each."""
        at = run, topic
        if at not in self._spans:
            found: dict[int, list[tuple[int, int, _Group]]] = {}
            for file in _files(self._path, run, "record", {topic}):
                for group in _groups(file):
                    for partition, first, last in _extents(group):
                        found.setdefault(partition, []).append((first, last, group))
            self._spans[at] = found
        return self._spans[at]

    def _table(self, group: _Group) -> Any:
        """Its rows; those read last stay in memory."""
        at = group.file.path, group.number
        found = self._kept.pop(at, None)
        if found is None:
            found = group.table()
        self._kept[at] = found
        while sum(table.nbytes for table in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)
        return found


def _extents(group: _Group) -> list[tuple[int, int, int]]:
    """Each partition of a row group with its first and its last offset there."""
    table = group.table(["partition", "offset"])
    partitions, offsets = (table[n].to_numpy() for n in ("partition", "offset"))
    return [
        (int(number), int(mine.min()), int(mine.max()))
        for number in np.unique(partitions)
        for mine in [offsets[partitions == number]]
    ]


def _overlapping(spans: list[tuple[int, int, _Group]]) -> Iterator[list[_Group]]:
    """The row groups in the order of their offsets; together those that can't be read one after the
    other, since the dates of their records do not rise with the offsets.
    """
    groups: list[_Group] = []
    reached = -1
    for first, last, group in sorted(spans, key=lambda span: span[:2]):
        if groups and first > reached:
            yield groups
            groups = []
        groups.append(group)
        reached = max(reached, last)
    if groups:
        yield groups
