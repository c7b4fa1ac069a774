"""The command is killed (kill -9) at random moments, again and again. Then its table has each
record once, as PyIceberg, Polars and DuckDB read it.
"""

from __future__ import annotations

import random
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.testing.brokers import Broker
from tests.conformance.kafka_jars import iceberg_jars
from tests.pipeline.jobs.conftest import records_of
from tests.pipeline.jobs.killed_jobs import Jobs
from tests.pipeline.jobs.tables.readers import READERS, metadata_of, read
from tests.pipeline.own_processes import ROOT
from tests.works_with.environments import environment

if TYPE_CHECKING:
    from tests.pipeline.jobs.tables.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough, pytest.mark.timeout(900)]

PARTITIONS, RECORDS, COMMIT = 3, 3000, 700
DAY_MS = 86_400_000
KILLS = 2


def read_as_the_page_says(metadata: str) -> str:
    """What the program of docs/tables.md prints, once read_table.py has installed extensions."""
    page = (ROOT / "docs" / "tables.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    python = environment("lake-readers", READERS)
    done = subprocess.run(
        [str(python), "-c", program, metadata], check=True, capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    return done.stdout


def test_a_table_that_is_killed_while_it_grows(broker: Broker, lake: Lake, tmp_path: Path) -> None:
    where, topic = broker.bootstrap_servers, f"killed.{uuid.uuid4().hex[:8]}"
    with AdminClient(bootstrap_servers=where) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, configs={"retention.ms": "-1"})])
    with Producer(bootstrap_servers=where) as producer:
        for n in range(RECORDS):
            producer.send(
                topic, b"v%d" % n, b"k%d" % (n % 99), partition=n % PARTITIONS,
                timestamp=1_600_000_000_000 + n * 3 * DAY_MS // RECORDS,
            )  # fmt: skip
    jobs = Jobs(tmp_path)
    command = [
        "table", topic, "--to", f"iceberg:{lake.name}/shop", "-b", where,
        "--max-offsets", str(COMMIT), "--conf", f"spark.jars={','.join(map(str, iceberg_jars()))}",
    ]  # fmt: skip
    for key, value in lake.settings.items():
        command += ["--conf", f"{key}={value}"]
    metadata = lake.warehouse / "shop" / topic.replace(".", "_") / "metadata"

    def commits() -> int:
        return len(list(metadata.glob("*.metadata.json")))

    for _ in range(KILLS):
        # One commit or two, and then a moment of the next one's work.
        wanted, late_s = commits() + random.randint(1, 2), random.random() * 2
        began: list[float] = []

        def reached(
            wanted: int = wanted, late_s: float = late_s, began: list[float] = began
        ) -> bool:
            if commits() >= wanted:
                began.append(time.monotonic())
            return bool(began) and time.monotonic() > began[0] + late_s

        print(f"killed {late_s:.2f} s after metadata file {wanted}")
        jobs.kill_when(reached, *command)
    jobs.finish(*command)

    expected = sorted(
        [str(p), str(offset).zfill(9), repr(key), repr(value), str(timestamp)]
        for p, records in records_of(broker, topic).items()
        for offset, timestamp, key, value, _ in records
    )
    assert len(expected) == RECORDS
    found = read(metadata_of(lake.file))
    assert found["pyiceberg"] == expected
    assert found["duckdb"] == expected
    assert found["polars"] == expected
    assert found["days"] == 4  # from the 13th, 12:26 UTC, to the 16th
    of_one = sum(row[0] == "0" for row in expected)
    assert read_as_the_page_says(metadata_of(lake.file)) == f"{of_one}\n{RECORDS}\n{RECORDS}\n"
