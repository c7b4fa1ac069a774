"""The Spark application that the sink's soak kills: one streaming query from a topic to another.

`python -m tests.soak.killed_query '{"bootstrap": "..", "source": "..", "master": "..", ..}'`
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that is killed soon spends most of its time in its optimizing compiler."""


def session(folder: Path, master: str) -> SparkSession:
    """A session with small executors, which may die any number of times."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_CONF_DIR"] = str(folder)
    options = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        # For so few rows, compiling a query takes longer than interpreting it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.task.maxFailures": "100",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.stage.maxConsecutiveAttempts": "100",
    }
    builder = SparkSession.builder.master(master).appName("killed")
    for name, value in options.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main(given: dict[str, Any]) -> None:
    """Run the query until it has read all current records of its source; with `follow`, for
    ever.
    """
    folder = Path(given["folder"])
    spark = session(folder, given["master"])
    source = (
        spark.readStream.format("kstore")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("subscribe", given["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.get("rows", 500))
        .load()
    )
    # A shuffle brings rows to tasks in a different order each time.
    rows = source.select("key", "value").repartition(3)
    writer = (
        rows.writeStream.format("kstore")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("topic", given["target"])
        .option("kafka.batch.size", 1000)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if given.get("follow"):
        query = writer.trigger(processingTime="0 seconds").start()
    else:
        query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
