"""A catalog in a SQLite file for the tests, and the content of its tables, read with pyarrow: data
files without the rows that position deletes name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from kstore.pipeline.jobs.tables.iceberg import Catalog
from kstore.pipeline.jobs.tables.keep import Kept, TableOptions, keep_table
from kstore.testing.brokers import Broker
from tests.conformance.kafka_jars import iceberg_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "shop"


class Lake:
    """One catalog, with a name of its own in Spark's settings."""

    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        self.spark = spark
        self.name = name
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.warehouse = folder / "catalog.db", folder / "warehouse"
        for key, value in self.settings.items():
            spark.conf.set(key, value)

    @property
    def settings(self) -> dict[str, str]:
        """The settings for Spark."""
        prefix = f"spark.sql.catalog.{self.name}"
        return {
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": f"jdbc:sqlite:{self.file}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": str(self.warehouse),
        }

    def options(self, bootstrap: str, topic: str, **more: Any) -> TableOptions:
        """The options of the job."""
        settings = {"bootstrap.servers": bootstrap}
        return TableOptions(settings, topic, self.name, NAMESPACE, topic, **more)

    def keep(self, broker: Broker, topic: str, **more: Any) -> Kept:
        return keep_table(self.spark, self.options(broker.bootstrap_servers, topic, **more), print)

    def command(self, broker: Broker, topic: str, max_offsets: int) -> list[str]:
        """The arguments of `kstore pipeline` for the same run, with this number of offsets in a
        commit.
        """
        jars = ",".join(map(str, iceberg_jars()))
        settings = {"spark.jars": jars} | self.settings
        return [
            "table", topic, "--to", f"iceberg:{self.name}/{NAMESPACE}",
            "-b", broker.bootstrap_servers, "--max-offsets", str(max_offsets),
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        ]  # fmt: skip

    def java_table(self, topic: str) -> Any:
        """The table as an object of Iceberg's library."""
        table = Catalog(self.spark, self.name).load(NAMESPACE, topic)
        return table._table

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The current content of the table, by partition and offset."""
        found: list[dict[str, Any]] = []
        tasks = self.java_table(topic).newScan().planFiles().iterator()
        while tasks.hasNext():
            task = tasks.next()
            path = str(task.file().location())
            gone = {
                row["pos"]
                for file in task.deletes()
                for row in pq.ParquetFile(str(file.location())).read().to_pylist()
                if row["file_path"] == path
            }
            rows = pq.ParquetFile(path).read().to_pylist()
            found += [row for at, row in enumerate(rows) if at not in gone]
        return sorted(found, key=lambda row: (row["partition"], row["offset"]))
