"""The command is killed (kill -9) at random moments, many times. Then its table has each record
once, as PyIceberg, Polars and DuckDB read it.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.testing.brokers import Broker
from tests.beside.programs import output_of
from tests.pipeline.jobs.killed_jobs import Jobs, late
from tests.pipeline.jobs.tables.readers import READERS, expected, fill, metadata_of, read
from tests.pipeline.own_processes import ROOT
from tests.works_with.environments import environment

if TYPE_CHECKING:
    from tests.pipeline.jobs.tables.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough, pytest.mark.timeout(900)]

RECORDS, COMMIT = 3000, 700
KILLS = 2


def read_as_the_page_says(metadata: str) -> str:
    """The output of the program in docs/tables.md, when read_table.py has installed the
    extensions.
    """
    page = (ROOT / "docs" / "tables.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    python = environment("lake-readers", READERS)
    return output_of([python, "-c", program, metadata], timeout_s=200)


def test_a_table_that_is_killed_while_it_grows(broker: Broker, lake: Lake, tmp_path: Path) -> None:
    topic = f"killed.{uuid.uuid4().hex[:8]}"
    fill(broker, topic, RECORDS)
    jobs, command = Jobs(tmp_path), lake.command(broker, topic, COMMIT)
    metadata = lake.warehouse / "shop" / topic.replace(".", "_") / "metadata"

    def commits() -> int:
        return len(list(metadata.glob("*.metadata.json")))

    for _ in range(KILLS):
        # Let it commit once or twice, and start on the next commit.
        wanted, late_s = commits() + random.randint(1, 2), random.random() * 2
        reached = late(lambda wanted=wanted: commits() >= wanted, late_s)
        print(f"killed {late_s:.2f} s after metadata file {wanted}")
        jobs.kill_when(reached, *command)
    jobs.finish(*command)

    wanted = expected(broker, topic)
    assert len(wanted) == RECORDS
    found = read(metadata_of(lake.file))
    assert found["pyiceberg"] == wanted
    assert found["duckdb"] == wanted
    assert found["polars"] == wanted
    assert found["days"] == 4  # from the 13th, 12:26 UTC, to the 16th
    of_one = sum(row[0] == "0" for row in wanted)
    assert read_as_the_page_says(metadata_of(lake.file)) == f"{of_one}\n{RECORDS}\n{RECORDS}\n"
