"""Runs in a separate environment: reads the column `value` of an Iceberg table by its metadata file
with PyIceberg, Polars and DuckDB, and prints what each found as one JSON object.
"""

from __future__ import annotations

import json
import sys

import polars as pl
from pyiceberg.table import StaticTable
from read_table import extended

metadata = sys.argv[1]
table = StaticTable.from_metadata(metadata)
rows = table.scan(selected_fields=("offset", "value")).to_arrow().to_pylist()
by_duckdb = extended().execute('SELECT "offset", value FROM iceberg_scan(?)', [metadata])
by_polars = pl.scan_iceberg(table).select("offset", "value").collect().to_dicts()
print(
    json.dumps(
        {
            "pyiceberg": sorted([row["offset"], row["value"]] for row in rows),
            "duckdb": sorted([offset, value] for offset, value in by_duckdb.fetchall()),
            "polars": sorted([row["offset"], row["value"]] for row in by_polars),
        }
    )
)
