"""Runs in a separate environment: reads an Iceberg table by its metadata file with PyIceberg,
Polars and DuckDB, and prints the rows that each found as one JSON object.
"""

from __future__ import annotations

import glob
import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import polars as pl
from pyiceberg.table import StaticTable


def extended() -> duckdb.DuckDBPyConnection:
    """DuckDB with the extensions from the package index. Elsewhere, INSTALL iceberg fetches
    them.
    """
    connection = duckdb.connect()
    for module, name in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
        (path,) = glob.glob(f"{Path(module.__file__).parent}/**/*.duckdb_extension", recursive=True)
        connection.execute(f"INSTALL '{path}'")
        connection.execute(f"LOAD {name}")
    return connection


def plain(found: list[tuple[object, ...]]) -> list[list[str]]:
    """Comparable rows: bytes and times in one form for all programs."""
    return sorted(
        [str(p), str(o).zfill(9), repr(key), repr(value), str(int(time.timestamp() * 1000))]
        for p, o, key, value, time in found
    )  # fmt: skip


if __name__ == "__main__":
    metadata = sys.argv[1]
    table = StaticTable.from_metadata(metadata)
    columns = ["partition", "offset", "key", "value", "timestamp"]
    rows = table.scan(selected_fields=tuple(columns)).to_arrow().select(columns)
    by_duckdb = extended().execute(
        f"SELECT {', '.join(f'{chr(34)}{c}{chr(34)}' for c in columns)} FROM iceberg_scan(?)",
        [metadata],
    )
    by_polars = pl.scan_iceberg(table).select(columns).collect()

    print(
        json.dumps(
            {
                "pyiceberg": plain([tuple(row.values()) for row in rows.to_pylist()]),
                "duckdb": plain(by_duckdb.fetchall()),
                "polars": plain(by_polars.rows()),
                "days": len({str(f.file.partition) for f in table.scan().plan_files()}),
            }
        )
    )
