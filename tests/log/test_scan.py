"""A log dir as Arrow: which rows and columns, and that DuckDB, Polars and pandas take it."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest

import kstore
from kstore.log import LogNotFoundError
from kstore.log.scan import SCAN_COLUMNS

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
    """What a scan gives."""
    return kstore.scan(folder, "orders", **options).read_all()  # type: ignore[arg-type]


def rows(folder: Path, partition: int) -> list[dict[str, object]]:
    """The same, record by record."""
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
        assert kstore.scan(tmp_path).read_all().column("value").to_pylist() == [b"1", b"2"]
        log.append(b"3")
        assert table(tmp_path, columns=["offset"]).num_rows == 3


def test_duckdb_polars_and_pandas_take_it(folder: Path) -> None:
    wanted = {0: 3000, 1: 3000}
    reader = kstore.scan(folder, "orders", columns=["partition", "value"])
    found = duckdb.from_arrow(reader).aggregate("partition, count(*)", "partition").fetchall()
    assert dict(found) == wanted
    frame = polars.from_arrow(kstore.scan(folder, "orders").read_all())
    assert dict(frame.group_by("partition").len().iter_rows()) == wanted
    pandas = kstore.scan(folder, "orders", columns=["partition", "timestamp"]).read_pandas()
    assert pandas.groupby("partition").size().to_dict() == wanted
    assert str(pandas["timestamp"].dtype) == "datetime64[ms, UTC]"


def test_bad_calls_say_what_to_do(folder: Path) -> None:
    with pytest.raises(ValueError, match="topics"):
        kstore.scan(folder)
    with pytest.raises(LogNotFoundError, match="no topic 'nothing'"):
        kstore.scan(folder, "nothing")
    with pytest.raises(LogNotFoundError, match="no partitions \\[7\\]"):
        table(folder, partitions=[0, 7])
    with pytest.raises(ValueError, match="use some of partition, offset"):
        table(folder, columns=["values"])
    with pytest.raises(TypeError, match="columns"):
        table(folder, columns="value")
    with pytest.raises(ValueError, match="without a zone"):
        table(folder, start_time=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="batch_rows"):
        table(folder, batch_rows=0)
    with pytest.raises(LogNotFoundError):
        kstore.scan(folder / "nowhere")
