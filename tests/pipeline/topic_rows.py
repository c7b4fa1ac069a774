"""Batches, and the query that copies a topic, with any Kafka connector of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstore.testing.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, broker: Broker, form: str, **options: Any) -> DataFrame:
    """A batch of the connector ``form``."""
    reader = spark.read.format(form).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(**options).load()


def write(df: DataFrame, broker: Broker, form: str, **options: Any) -> None:
    """The rows of the connector ``form``."""
    writer = df.write.format(form).mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.options(**options).save()


def expected(*ranges: range) -> list[bytes]:
    """The values of the records with these numbers, in the form of `values_of`."""
    return sorted(b"%d" % n for each in ranges for n in each)


def copy_what_is_there(
    spark: SparkSession, form: str, bootstrap: str, source: str, target: str, checkpoint: Path
) -> None:
    """Run a stream of the connector ``form`` from topic to topic, in micro-batches of 60, until it
    has copied everything. It continues from its checkpoint if it has one.
    """
    stream = (
        spark.readStream.format(form)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60)
        .load()
        .select("key", "value")
        .writeStream.format(form)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
