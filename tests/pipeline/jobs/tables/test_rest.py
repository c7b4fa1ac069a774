"""Tables in a REST catalog: all rows once, also if answers to commits are lost or the command is
killed. PyIceberg, Polars and DuckDB read them.
"""

from __future__ import annotations

import json
import random
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kstore.clients import Producer
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.tables.iceberg import Catalog
from kstore.pipeline.jobs.tables.keep import keep_table
from kstore.testing.brokers import Broker
from tests.pipeline.jobs.killed_jobs import Jobs, late
from tests.pipeline.jobs.tables.lake import NAMESPACE, Lake
from tests.pipeline.jobs.tables.readers import READERS, expected, fill, read
from tests.works_with.environments import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough, pytest.mark.timeout(900)]

TOKEN = "not-a-secret-of-anybody"


class RestLake(Lake):
    """A catalog behind a server."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(spark, folder, name)

    @property
    def settings(self) -> dict[str, str]:
        """The settings for Spark."""
        prefix = f"spark.sql.catalog.{self.name}"
        return {f"{prefix}.type": "rest", f"{prefix}.uri": self.url, f"{prefix}.token": TOKEN}

    def ask(self, method: str, path: str) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        asked = urllib.request.Request(f"{self.url}/{path}", method=method, headers=headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def metadata(self, table: str) -> str:
        found = self.ask("GET", f"v1/namespaces/{NAMESPACE}/tables/{table}")
        return str(found["metadata-location"])


@pytest.fixture
def rest(spark: SparkSession, jars: list[Path], tmp_path: Path) -> Iterator[RestLake]:
    folder = tmp_path / "rest"
    folder.mkdir()
    program = Path(__file__).with_name("rest_server.py")
    python = environment("lake-readers", READERS)
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(
            [str(python), str(program), str(folder), TOKEN], stdout=subprocess.PIPE, stderr=log
        )
    assert server.stdout is not None
    try:
        port = server.stdout.readline()
        assert port, (folder / "server.log").read_text()
        yield RestLake(spark, folder, f"rest_{uuid.uuid4().hex[:8]}", int(port))
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_rounds_whose_answers_are_lost(spark: SparkSession, broker: Broker, rest: RestLake) -> None:
    topic = f"rest.{uuid.uuid4().hex[:8]}"
    fill(broker, topic, 900)
    table = topic.replace(".", "_")
    options = rest.options(broker.bootstrap_servers, topic, max_offsets=300)
    options = options.__class__(**(vars(options) | {"table": table}))
    said: list[str] = []
    kept = keep_table(spark, options, said.append)
    assert (kept.records, kept.behind) == (300, 600)
    rest.ask("POST", "lose/1")
    kept = keep_table(spark, options, said.append)
    assert (kept.records, kept.behind) == (300, 300)
    rest.ask("POST", "lose/1")
    assert keep_table(spark, options, said.append).behind == 0
    assert keep_table(spark, options, said.append).records == 0
    found = read(rest.metadata(table))
    wanted = expected(broker, topic)
    assert len(wanted) == 900
    assert found["pyiceberg"] == found["duckdb"] == found["polars"] == wanted
    assert found["days"] == 4


def test_the_latest_values(spark: SparkSession, broker: Broker, rest: RestLake) -> None:
    topic = f"latest-{uuid.uuid4().hex[:8]}"
    fill(broker, topic, 300, **{"cleanup.policy": "compact"})
    table = topic.replace("-", "_")
    options = rest.options(broker.bootstrap_servers, topic)
    options = options.__class__(**(vars(options) | {"table": table}))
    keep_table(spark, options, lambda text: None)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(99):
            producer.send(topic, None if n % 2 else b"new", b"k%d" % n, partition=n % 3)
    keep_table(spark, options, lambda text: None)
    keys = sorted(row[2:4] for row in read(rest.metadata(table))["pyiceberg"])
    assert keys == sorted([repr(b"k%d" % n), repr(b"new")] for n in range(0, 99, 2))


def test_a_catalog_that_refuses_is_told(spark: SparkSession, rest: RestLake) -> None:
    spark.conf.set(f"spark.sql.catalog.{rest.name}.token", "wrong")
    with pytest.raises(JobError, match=r"NotAuthorizedException: .*who are you\?"):
        Catalog(spark, rest.name).load(NAMESPACE, "t")
    spark.conf.set(f"spark.sql.catalog.{rest.name}.uri", "http://127.0.0.1:1")
    with pytest.raises(JobError, match=f"the catalog {rest.name} can't be opened") as error:
        Catalog(spark, rest.name).load(NAMESPACE, "t")
    assert error.value.passes


def test_the_command_is_killed(broker: Broker, rest: RestLake, tmp_path: Path) -> None:
    topic = f"killed.{uuid.uuid4().hex[:8]}"
    fill(broker, topic, 1500)
    table = topic.replace(".", "_")
    jobs = Jobs(tmp_path)
    command = rest.command(broker, topic, 500)
    late_s = random.random() * 2
    print(f"killed {late_s:.2f} s after a commit")
    where = tmp_path / "rest" / "warehouse"  # data files are added and removed
    third = "*/*/metadata/00002-*.metadata.json"
    reached = late(lambda: any(where.glob(third)), late_s)
    jobs.kill_when(reached, *command)
    jobs.finish(*command)
    assert read(rest.metadata(table))["pyiceberg"] == expected(broker, topic)
