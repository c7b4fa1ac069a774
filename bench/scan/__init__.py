"""`kstore.scan` in DuckDB and Polars, compared with Parquet files of the same records that the same
engine reads in turns. CPU is that of this process with all its threads. Brokers run in separate
processes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import kstore
from bench.brokers import kstore_broker
from bench.measure import Figures, Settings, Side, progress, take_turns
from bench.report import Row
from kstore.clients import AdminClient, Producer
from kstore.clients.admin import NewTopic

__all__ = ["rows"]

PARTITIONS = 4
TURNS = 5
SIZES = ((100, 2_000_000), (1000, 500_000))
"""The size of a value in bytes, and the number of records."""
PEER = "Parquet"
QUERIES = {"bytes of all values": "value", "the last offset": "offset"}
"""The query, and the column that it needs."""


def rows(settings: Settings) -> list[Row]:
    """All rows of the group, on one broker and its log dir."""
    found: list[Row] = []
    with kstore_broker(settings.scratch / "broker") as broker:
        for size, full in SIZES:
            count = settings.pick(full, full // 10)
            topic = f"values-{size}"
            _fill(broker.bootstrap, topic, count, size)
            sources = {
                "log dir": kstore.scan(broker.log_dir, topic),
                "brokers": kstore.scan(topic=topic, bootstrap_servers=broker.bootstrap),
            }
            parquet = _written(sources["log dir"], settings.scratch / f"{topic}.parquet")
            for engine, query in ((e, q) for e in ("DuckDB", "Polars") for q in QUERIES):
                label = f"{engine}, {query}, {size} B"
                if settings.wants(label):
                    progress(f"  {label}")
                    found += _compared(label, engine, query, sources, parquet, count, settings)
    return found


def _fill(servers: str, topic: str, count: int, size: int) -> None:
    with AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    draw = random.Random(size)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, draw.randbytes(size), key=b"key-%06d" % (number % 100_000))


def _written(scan: kstore.pipeline.scanning.scan.Scan, path: Path) -> Path:
    """The same records and columns as one Parquet file, as pyarrow writes it by default."""
    import pyarrow.parquet as pq

    reader = scan.to_reader()
    with pq.ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    return path


def _compared(
    label: str,
    engine: str,
    query: str,
    sources: dict[str, kstore.pipeline.scanning.scan.Scan],
    parquet: Path,
    count: int,
    settings: Settings,
) -> list[Row]:
    run = {"DuckDB": _in_duckdb, "Polars": _in_polars}[engine]
    cases: dict[str, Callable[[], Figures]] = {
        name: _measured(lambda scan=scan: run(query, scan, None), count)  # type: ignore[misc]
        for name, scan in sources.items()
    }
    cases[PEER] = _measured(lambda: run(query, None, parquet), count)
    take_turns(f"{label}, warming up", cases, 1)
    sides = take_turns(label, cases, settings.pick(TURNS, 2))
    return [row for name in sources for row in _rows(f"{label}, {name}", sides[name], sides[PEER])]


def _rows(case: str, ours: Side, theirs: Side) -> list[Row]:
    return [
        Row(
            "scan", f"{case}: {words}", ours.median(figure), "1/s", PEER, theirs.median(figure),
            spread=ours.spread(figure), peer_spread=theirs.spread(figure), state=ours.state,
            peer_state=theirs.state,
        )
        for figure, words in (("per_cpu_s", "rows per CPU s"), ("rate", "rows/s"))
    ]  # fmt: skip


def _measured(run: Callable[[], int], count: int) -> Callable[[], Figures]:
    def measured() -> Figures:
        begin, cpu = time.monotonic(), time.process_time()
        found = run()
        took, used = time.monotonic() - begin, time.process_time() - cpu
        if found != count:
            raise RuntimeError(f"{found} rows, and {count} were to be there")
        return {"rate": count / took, "per_cpu_s": count / used}

    return measured


def _in_duckdb(
    query: str, scan: kstore.pipeline.scanning.scan.Scan | None, parquet: Path | None
) -> int:
    import duckdb

    with duckdb.connect() as connection:
        if scan is not None:
            relation = scan.to_duckdb(connection)
        else:
            relation = connection.read_parquet(str(parquet))
        column = QUERIES[query]
        figure = f"octet_length({column})" if column == "value" else f'"{column}"'
        total = "sum" if column == "value" else "max"
        ((count, _),) = relation.aggregate(f"count({figure}), {total}({figure})").fetchall()
    return int(count)


def _in_polars(
    query: str, scan: kstore.pipeline.scanning.scan.Scan | None, parquet: Path | None
) -> int:
    import polars as pl

    frame = scan.to_lazy() if scan is not None else pl.scan_parquet(parquet or "")
    column = pl.col(QUERIES[query])
    figure = column.bin.size().sum() if QUERIES[query] == "value" else column.max()
    found = frame.select(column.count().alias("count"), figure.alias("figure")).collect(
        engine="streaming"
    )
    return int(found["count"][0])
