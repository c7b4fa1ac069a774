"""Other programs that read Iceberg tables, in a separate environment, and what they should find."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.testing.brokers import Broker
from tests.beside.programs import output_of
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.conftest import records_of
from tests.works_with.environments import environment

READERS = [
    "pyiceberg[sql-sqlite]==0.12.0", "pyarrow==26.0.1", "polars==2.1.0", "pytz",
    "duckdb==1.5.5", "duckdb-extension-avro==1.5.5", "duckdb-extension-iceberg==1.5.5",
]  # fmt: skip


DAY_MS = 86_400_000


def fill(broker: Broker, topic: str, records: int, **configs: str) -> None:
    """A new topic of three partitions with records of three days."""
    where = broker.bootstrap_servers
    with AdminClient(bootstrap_servers=where) as admin:
        admin.create_topics([NewTopic(topic, 3, configs=KEEP | configs)])
    with Producer(bootstrap_servers=where) as producer:
        for n in range(records):
            producer.send(
                topic, b"v%d" % n, b"k%d" % (n % 99), partition=n % 3,
                timestamp=1_600_000_000_000 + n * 3 * DAY_MS // records,
            )  # fmt: skip


def expected(broker: Broker, topic: str) -> list[list[str]]:
    """Rows in the form of `read`."""
    return sorted(
        [str(p), str(offset).zfill(9), repr(key), repr(value), str(timestamp)]
        for p, records in records_of(broker, topic).items()
        for offset, timestamp, key, value, _ in records
    )


def metadata_of(catalog: Path) -> str:
    """The metadata file that the catalog names."""
    with sqlite3.connect(catalog) as connection:
        (found,) = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    connection.close()
    return str(found)


def read(metadata: str, program: str = "read_table.py") -> Any:
    """The output of a program of this folder."""
    python = environment("lake-readers", READERS)
    command = [python, Path(__file__).with_name(program), metadata]
    return json.loads(output_of(command, timeout_s=200))
