"""Reading an archive without Spark: only finished runs, and only the row groups that are needed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import kstore
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.schema import source_schema
from kstore.pipeline.segments.archive_reader import ArchiveRange
from kstore.pipeline.segments.reader import SegmentReader
from kstore.pipeline.segments.slices import VERSION

SCHEMA = source_schema(include_headers=True)
FIELDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestampMillis", pa.int64()),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def _row(partition: int, offset: int, millis: int | None = None) -> dict[str, Any]:
    headers = [{"key": "h", "value": b"x"}] if offset % 2 else []
    return {
        "partition": partition, "offset": offset, "timestampType": 0, "key": None,
        "timestampMillis": 1000 + offset if millis is None else millis,
        "value": b"%d" % offset, "headers": headers,
    }  # fmt: skip


def _run(
    path: Path, run: str, rows: list[dict[str, Any]], *, finished: bool = True, group: int = 10
) -> None:
    """The files of a run: a file with row groups of this number of rows, and its slices."""
    folder = path / "data" / f"run={run}" / "entry=record" / "topic=t" / "date=2026-01-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, FIELDS), folder / "a.parquet", row_group_size=group)
    slices = path / "slices" / f"run={run}"
    slices.mkdir(parents=True)
    if not finished:
        return
    ends = {p: [r["offset"] for r in rows if r["partition"] == p] for p in (0, 1)}
    table = [
        {
            "topic": "t", "topic_id": "", "partition": p, "start": min(found),
            "end": max(found) + 1, "records": len(found), "partition_epoch": -1, "version": VERSION,
        }
        for p, found in ends.items()
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(table), slices / "a.parquet")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two finished runs with offsets 0 to 59 of two partitions, and a killed one."""
    for number, first in enumerate((0, 30)):
        _run(tmp_path, f"r{number}", [_row(p, first + n) for p in (0, 1) for n in range(30)])
    _run(tmp_path, "killed", [_row(p, n) for p in (0, 1) for n in range(60, 90)], finished=False)
    return tmp_path


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_became_complete_does_not_count(archive: Path) -> None:
    _run(archive, "r2", [_row(p, n) for p in (0, 1) for n in range(60, 90)])
    assert _rows(_reader(archive)) == [(p, n) for p in (0, 1) for n in range(90)]


def _reader(path: Path, **options: str) -> SegmentReader:
    return SegmentReader(SCHEMA, {"path": str(path), "includeHeaders": "true"} | options)


def _rows(reader: SegmentReader) -> list[tuple[int, int]]:
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [(r["partition"], r["offset"]) for b in batches for r in b.to_pylist()]


@pytest.mark.parametrize("options", [{}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "7"}])
def test_every_record_of_finished_runs_once(archive: Path, options: dict[str, str]) -> None:
    assert _rows(_reader(archive, **options)) == [(p, n) for p in (0, 1) for n in range(60)]


def test_rows_look_as_from_a_broker(archive: Path) -> None:
    reader = _reader(archive, endingOffsets='{"t": {"0": 2, "1": 0}}', subscribe="t")
    (batch,) = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert batch.column("value").to_pylist() == [b"0", b"1"]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_000_000, 1_001_000]
    assert batch.column("headers").to_pylist() == [None, [{"key": "h", "value": b"x"}]]


def test_only_row_groups_that_may_hold_the_range_are_read(archive: Path) -> None:
    starts, ends = '{"t": {"0": 12, "1": 60}}', '{"t": {"0": 15, "1": 60}}'
    reader = _reader(archive, subscribe="t", startingOffsets=starts, endingOffsets=ends)
    (task,) = reader.partitions()
    assert isinstance(task.value, ArchiveRange)
    assert [numbers for _, numbers in task.value.groups] == [(1,)]
    assert _rows(reader) == [(0, 12), (0, 13), (0, 14)]


def test_values_as_text_are_bytes_as_they_are(tmp_path: Path) -> None:
    _run(tmp_path, "r", [_row(p, 0) | {"value": b"\xff" if p else b"0"} for p in (0, 1)])
    schema = StructType([StructField("value", StringType()), StructField("key", StringType())])
    reader = SegmentReader(schema, {"path": str(tmp_path)})
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert [batch.schema.types for batch in batches] == [[pa.string(), pa.string()]] * 2
    found = [batch.column("value").view(pa.binary()).to_pylist() for batch in batches]
    assert found == [[b"0"], [b"\xff"]]


def test_times_choose_offsets(archive: Path) -> None:
    reader = _reader(archive, startingTimestamp="1050", endingTimestamp="1055")
    assert _rows(reader) == [(p, n) for p in (0, 1) for n in range(50, 55)]


def test_only_row_groups_with_records_of_the_time_are_read(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    batches, group = pq.ParquetFile.iter_batches, pq.ParquetFile.read_row_group

    def counted(file: Any, size: int, *, row_groups: list[int], columns: list[str]) -> Any:
        read.extend(row_groups)
        return batches(file, size, row_groups=row_groups, columns=columns)

    def counted_group(file: Any, number: int, **more: Any) -> Any:
        read.append(number)
        return group(file, number, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted_group)
    found = kstore.scan(archive, "t", start_time=1045, end_time=1047, columns=["offset"])
    assert [row for batch in found for row in batch["offset"].to_pylist()] == [45, 46] * 2
    # The second run's: twice those that may begin the time, and then those with these records.
    assert sorted(read) == sorted([1, 2, 4, 5] * 2 + [1, 4])
    read.clear()
    late = kstore.scan(archive, "t", start_time=1058, columns=["offset"])
    assert [row for batch in late for row in batch["offset"].to_pylist()] == [58, 59] * 2
    assert sorted(set(read)) == [2, 5]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each batch that Arrow decodes."""
    found: list[int] = []
    batches = pq.ParquetFile.iter_batches

    def counted(file: Any, *arguments: Any, **more: Any) -> Any:
        for batch in batches(file, *arguments, **more):
            found.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    return found


def test_a_few_rows_behind_many_others_are_read_in_few_steps(
    tmp_path: Path, decoded: list[int]
) -> None:
    count = 9000
    rows = [_row(p, n) for p in (0, 1) for n in range(count)]
    _run(tmp_path, "r", rows, group=2 * count)
    few = kstore.scan(tmp_path, "t", partitions=[1], columns=["offset"]).for_rows(5)
    batch = next(few.planned()())
    assert batch["offset"].to_pylist() == [0, 1, 2, 3, 4]
    assert len(decoded) <= 12
    assert sum(decoded) <= 4 * 2 * count
    decoded.clear()
    assert next(few.select("value").planned()()).num_rows == 5
    first = kstore.scan(tmp_path, "t", columns=["offset"]).for_rows(5)
    decoded.clear()
    next(first.planned()())
    assert decoded == [5]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows_each",
    [
        1,
        pytest.param(3, marks=pytest.mark.thorough),
        50,
        pytest.param(10_000, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("group", [7, 100, 10_000])
def test_rows_that_lie_far_apart_all_come_once(tmp_path: Path, rows_each: int, group: int) -> None:
    draw = random.Random(rows_each * group)
    rows = [
        _row(p, n, 5000 if draw.random() < (0.02 if n % 600 < 400 else 0.9) else 1)
        for p in (0, 1)
        for n in range(1500)
    ]
    _run(tmp_path, "r", rows, group=group)
    found = kstore.scan(
        tmp_path, "t", columns=["partition", "offset"], start_time=9, batch_rows=rows_each
    )
    batches = list(found)
    assert max(batch.num_rows for batch in batches) <= rows_each
    places = [(r["partition"], r["offset"]) for b in batches for r in b.to_pylist()]
    wanted = [row for row in rows if row["timestampMillis"] == 5000]
    assert places == [(row["partition"], row["offset"]) for row in wanted]


@pytest.mark.parametrize("millis", [2**62, 2**63 - 1])
def test_records_of_the_latest_times_are_there(tmp_path: Path, millis: int) -> None:
    _run(tmp_path, "r", [_row(p, n, millis) for p in (0, 1) for n in range(3)])
    for times in ({}, {"start_time": 0}, {"start_time": 2**62}):
        found = kstore.scan(tmp_path, "t", columns=["offset"], **times)
        assert found.to_arrow()["offset"].to_pylist() == [0, 1, 2] * 2
    assert kstore.scan(tmp_path, "t", columns=["offset"], end_time=2**62).to_arrow().num_rows == 0


def test_a_damaged_file_is_named(archive: Path) -> None:
    file = next(archive.glob("data/run=r1/**/*.parquet"))
    file.write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(PipelineError, match=rf"archive file {file} can't be read"):
        _reader(archive).partitions()


@pytest.mark.parametrize("lost", ["run=r0", "run=r1/entry=record/topic=t/date=2026-01-01"])
def test_missing_files_of_a_run_are_an_error(archive: Path, lost: str) -> None:
    run = lost[4:6]
    (archive / "data" / lost).rename(archive / "elsewhere")
    said = rf"topic t: the files of run {run} in .* have 0 records, and 60 were archived\. Copy the"
    with pytest.raises(PipelineError, match=said):
        _reader(archive).partitions()
    with pytest.raises(PipelineError, match=said):
        kstore.scan(archive).to_arrow()


def test_a_damaged_file_of_slices_is_named(archive: Path) -> None:
    file = archive / "slices" / "run=r0" / "a.parquet"
    file.write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(PipelineError, match=rf"archive file {file} can't be read"):
        _reader(archive).partitions()


def test_what_was_not_archived_is_named(archive: Path) -> None:
    with pytest.raises(PipelineError, match=r"does not have missing\. It has t"):
        _reader(archive, subscribe="missing").partitions()


def test_a_timestamp_beyond_sparks_range_names_its_offset(tmp_path: Path) -> None:
    _run(tmp_path, "r", [_row(0, 0), _row(0, 1, 2**62), _row(1, 0)])
    with pytest.raises(PipelineError, match="topic t, partition 0, offset 1: a timestamp"):
        _rows(_reader(tmp_path))
