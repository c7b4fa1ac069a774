"""Other programs that read Iceberg, in an environment of their own."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from tests.works_with.environments import environment

READERS = [
    "pyiceberg[sql-sqlite]==0.12.0", "pyarrow==26.0.1", "polars==2.1.0", "pytz",
    "duckdb==1.5.5", "duckdb-extension-avro==1.5.5", "duckdb-extension-iceberg==1.5.5",
]  # fmt: skip


def metadata_of(catalog: Path) -> str:
    """The metadata file that the catalog names."""
    with sqlite3.connect(catalog) as connection:
        (found,) = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    connection.close()
    return str(found)


def read(metadata: str, program: str = "read_table.py") -> Any:
    """What a program of this folder finds: see there."""
    python = environment("lake-readers", READERS)
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name(program)), metadata], check=False,
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
