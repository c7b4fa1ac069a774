"""Topics as Arrow: which rows and columns, from a log dir, an archive and brokers. DuckDB, Polars
and pandas accept them.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kstore
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.scanning.layout import SCAN_COLUMNS
from kstore.pipeline.segments import files
from tests.beside.programs import output_of
from tests.log.handling import flip_bit

BEGAN_MS = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions of 3,000 records over several segments, and another topic."""
    draw = random.Random(3)
    with kstore.open_log_dir(tmp_path, segment_bytes=40_000) as log_dir:
        for partition in (0, 1):
            log = log_dir.log("orders", partition)
            for batch in range(30):
                log.append_many(
                    (
                        b"k%d" % partition if number % 7 else None,
                        draw.randbytes(draw.randrange(50)),
                        BEGAN_MS + (batch * 100 + number) * 10,
                        [("h", b"%d" % number)] if number % 50 == 0 else [],
                    )
                    for number in range(100)
                )
        log_dir.log("other").append(b"x")
    return tmp_path


def table(folder: Path, **options: object) -> pa.Table:
    """The rows of a scan."""
    return kstore.scan(folder, "orders", **options).to_arrow()  # type: ignore[arg-type]


def rows(folder: Path, partition: int) -> list[dict[str, object]]:
    """The expected rows, record by record."""
    log = kstore.open_log(folder, topic="orders", partition=partition, read_only=True)
    with log:
        return [
            {
                "partition": partition,
                "offset": record.offset,
                "timestamp": datetime.fromtimestamp(record.timestamp / 1000, UTC),
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers],
            }
            for record in log.records()
        ]


def test_all_of_it(folder: Path) -> None:
    found = table(folder)
    assert found.column_names == list(SCAN_COLUMNS)
    assert found.to_pylist() == rows(folder, 0) + rows(folder, 1)


@pytest.mark.parametrize("rows_each", [1, 7, 100_000])
def test_some_rows_and_columns(folder: Path, rows_each: int) -> None:
    columns = ["value", "offset"]
    found = kstore.scan(
        folder, "orders", partitions=[1], columns=columns, start_offset=150, end_offset=260,
        batch_rows=rows_each,
    )  # fmt: skip
    batches = list(found)
    assert max(batch.num_rows for batch in batches) <= rows_each
    wanted = [{name: row[name] for name in columns} for row in rows(folder, 1)[150:260]]
    assert pa.Table.from_batches(batches).to_pylist() == wanted


def test_some_time(folder: Path) -> None:
    first, last = BEGAN_MS + 5_000, BEGAN_MS + 5_050
    found = table(folder, columns=["partition", "offset"], start_time=first, end_time=last)
    wanted = [{"partition": p, "offset": at} for p in (0, 1) for at in range(500, 505)]
    assert found.to_pylist() == wanted
    same = table(
        folder, columns=["partition", "offset"],
        start_time=datetime.fromtimestamp(first / 1000, UTC),
        end_time=datetime.fromtimestamp(last / 1000, UTC),
    )  # fmt: skip
    assert same == found
    assert table(folder, start_time=BEGAN_MS * 2).num_rows == 0
    assert table(folder, end_time=BEGAN_MS).num_rows == 0


def test_beside_a_writer(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, topic="orders") as log:
        log.append_many([b"1", b"2"])
        assert kstore.scan(tmp_path).to_arrow().column("value").to_pylist() == [b"1", b"2"]
        log.append(b"3")
        assert table(tmp_path, columns=["offset"]).num_rows == 3


def test_duckdb_polars_and_pandas_take_it(folder: Path) -> None:
    wanted = {0: 3000, 1: 3000}
    orders = kstore.scan(folder, "orders")
    counts = "select partition, count(*) from orders group by all"
    for _ in range(2):  # each query reads again
        assert dict(duckdb.sql(counts).fetchall()) == wanted
    found = orders.to_duckdb().aggregate("partition, count(*)", "partition").fetchall()
    assert dict(found) == wanted
    frame = orders.to_polars()
    assert dict(frame.group_by("partition").len().iter_rows()) == wanted
    assert frame.schema == orders.to_lazy().collect_schema()
    pandas = orders.select("partition", "timestamp").to_pandas()
    assert pandas.groupby("partition").size().to_dict() == wanted
    assert str(pandas["timestamp"].dtype) == "datetime64[ms, UTC]"
    assert pa.table(orders) == orders.to_arrow()
    assert orders.to_arrow().validate(full=True) is None


def test_engines_read_only_the_columns_that_a_query_needs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    narrowed = kstore.pipeline.scanning.scan.Scan.select

    def select(scan: object, *columns: str) -> object:
        asked.append(columns)
        return narrowed(scan, *columns)  # type: ignore[arg-type]

    monkeypatch.setattr(kstore.pipeline.scanning.scan.Scan, "select", select)
    orders = kstore.scan(folder, "orders")
    late = orders.to_duckdb().filter('"offset" >= 2990').aggregate("count(distinct key)")
    assert late.fetchall() == [(2,)]
    assert asked == [("offset", "key")]
    asked.clear()
    frame = orders.to_lazy().filter(polars.col("offset") >= 2990).select("partition").collect()
    assert frame["partition"].to_list() == [0] * 10 + [1] * 10
    assert [set(columns) for columns in asked] == [{"partition", "offset"}]
    assert orders.to_lazy().head(5).collect()["offset"].to_list() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_neither_pyarrow_nor_pyspark_is_needed(folder: Path) -> None:
    program = f"""
import sys
for name in ("pyarrow", "numpy", "pyspark", "pandas"):
    sys.modules[name] = None
import duckdb, polars, kstore, kstore.pipeline.fetching
orders = kstore.scan({str(folder)!r}, "orders")
print(len(orders.to_polars()), len(orders.to_lazy().select("headers").collect()))
print(duckdb.sql("select count(value) from orders").fetchall()[0][0])
print(orders.to_duckdb().aggregate("count(*)").fetchall()[0][0])
try:
    orders.to_arrow()
except ImportError as error:
    print(error)
"""
    lines = output_of([sys.executable, "-c", program]).splitlines()
    assert lines[:3] == ["6000 6000", "6000", "6000"]
    assert "pip install 'kstore[arrow]'" in lines[3]


def test_no_more_is_read_than_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open_log(tmp_path, topic="big") as log:
        for _ in range(80):
            log.append_many([bytes(100_000)] * 5)
    read: list[int] = []
    preadv = os.preadv

    def counted(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        read.append(preadv(descriptor, buffers, offset))
        return read[-1]

    monkeypatch.setattr(files.os, "preadv", counted)
    batches = iter(kstore.scan(tmp_path, batch_rows=3))
    assert next(batches).num_rows == 3
    planned = sum(read)
    assert next(batches).num_rows == 3
    assert sum(read) - planned <= 2 * files.PIECE_BYTES
    del batches
    read.clear()
    assert kstore.scan(tmp_path, columns=["offset"]).to_polars().height == 400
    assert sum(read) >= 40_000_000


def test_a_few_rows_are_all_that_is_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    decoded = kstore.pipeline.scanning.layout._ScanDecoder.made

    def counted(decoder: object, found: object) -> object:
        made.append(found.count)  # type: ignore[attr-defined]
        return decoded(decoder, found)  # type: ignore[arg-type]

    monkeypatch.setattr(kstore.pipeline.scanning.layout._ScanDecoder, "made", counted)
    orders = kstore.scan(folder, "orders")
    few = next(iter(orders.for_rows(5)))
    assert few.column("offset").to_pylist() == [0, 1, 2, 3, 4]
    assert orders.to_lazy().head(5).collect().height == 5
    assert sum(made) <= 2 * 2 * 5  # a stream may be one piece ahead
    assert pa.table(orders.for_rows(5)) == orders.to_arrow()


def test_a_damaged_batch_is_named_by_every_library(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    segment = sorted((folder / "orders-1").glob("*.log"))[1]
    flip_bit(segment, 200)
    orders = kstore.scan(folder, "orders")
    message = f"topic orders, partition 1, offset {int(segment.stem)}: segment .* is damaged"
    with pytest.raises(OSError, match=message):
        orders.to_arrow()
    with pytest.raises(polars.exceptions.ComputeError, match=message):
        orders.to_polars()
    with pytest.raises(duckdb.Error, match=message):
        duckdb.sql("select count(value) from orders").fetchall()
    with pytest.raises(PipelineError, match=message + r".*pass fail_on_data_loss=False"):
        list(orders.planned()())
    rest = kstore.scan(folder, "orders", fail_on_data_loss=False, columns=["offset"])
    assert rest.to_polars().height == 5900
    assert "Continuing after it" in capfd.readouterr().err


def test_an_archive_gives_the_same_columns(tmp_path: Path) -> None:
    columns = {
        "partition": pa.array([0, 0, 1], pa.int32()),
        "offset": pa.array([4, 5, 0], pa.int64()),
        "timestampMillis": pa.array([BEGAN_MS, BEGAN_MS + 1, -1], pa.int64()),
        "key": pa.array([None, b"k", b""], pa.binary()),
        "value": pa.array([b"a", None, b"c"], pa.binary()),
        "headers": pa.array(
            [None, [{"key": "h", "value": b"x"}], []],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    data = tmp_path / "data" / "run=1" / "entry=record" / "topic=t" / "date=none"
    data.mkdir(parents=True)
    pq.write_table(pa.table(columns), data / "a.parquet")
    slices = tmp_path / "slices" / "run=1"
    slices.mkdir(parents=True)
    row = {"topic": "t", "topic_id": "", "partition_epoch": -1, "version": 1}
    rows = [
        row | {"partition": 0, "start": 4, "end": 6, "records": 2},
        row | {"partition": 1, "start": 0, "end": 1, "records": 1},
    ]
    pq.write_table(pa.Table.from_pylist(rows), slices / "a.parquet")
    whole = kstore.scan(tmp_path).to_arrow()
    assert whole.to_pylist() == [
        {"partition": 0, "offset": 4, "timestamp": datetime.fromtimestamp(BEGAN_MS / 1000, UTC),
         "key": None, "value": b"a", "headers": []},
        {"partition": 0, "offset": 5,
         "timestamp": datetime.fromtimestamp((BEGAN_MS + 1) / 1000, UTC),
         "key": b"k", "value": None, "headers": [{"key": "h", "value": b"x"}]},
        {"partition": 1, "offset": 0, "timestamp": datetime.fromtimestamp(-0.001, UTC),
         "key": b"", "value": b"c", "headers": []},
    ]  # fmt: skip
    assert kstore.scan(tmp_path, end_time=BEGAN_MS, columns=["value"]).to_polars().rows() == [
        (b"c",)
    ]
    assert kstore.scan(tmp_path, partitions=[0], start_offset=5).to_lazy().collect().height == 1


def test_bad_calls_say_what_to_do(folder: Path) -> None:
    with pytest.raises(ValueError, match="topics"):
        kstore.scan(folder)
    with pytest.raises(PipelineError, match=r"topic nothing: .* has no partition of it"):
        kstore.scan(folder, "nothing")
    with pytest.raises(
        PipelineError, match=r"partitions \[7\] do not exist. The topic has partitions \[0, 1\]"
    ):
        table(folder, partitions=[0, 7])
    with pytest.raises(ValueError, match="use some of partition, offset"):
        table(folder, columns=["values"])
    with pytest.raises(ValueError, match="each once"):
        table(folder, columns=["value", "value"])
    with pytest.raises(TypeError, match="columns"):
        table(folder, columns="value")
    with pytest.raises(ValueError, match="without a time zone"):
        table(folder, start_time=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="start_time is -1 ms"):
        table(folder, start_time=-1)  # a broker would take it for the end of the log
    with pytest.raises(ValueError, match="end_time is -86400000 ms"):
        table(folder, end_time=datetime(1969, 12, 31, tzinfo=UTC))
    with pytest.raises(ValueError, match="batch_rows"):
        table(folder, batch_rows=0)
    with pytest.raises(ValueError, match="read_uncommitted or read_committed"):
        table(folder, isolation="none")
    with pytest.raises(PipelineError, match="nowhere"):
        kstore.scan(folder / "nowhere")
    with pytest.raises(ValueError, match="path of a log dir or an archive, or bootstrap_servers"):
        kstore.scan(topic="orders")
    with pytest.raises(ValueError, match="either path or bootstrap_servers"):
        table(folder, bootstrap_servers="localhost:9092")
    with pytest.raises(ValueError, match=r"bootstrap\.servers|fetch\.max"):
        kstore.scan(topic="t", bootstrap_servers="h:1", config={"fetch.max.byte": 1})
