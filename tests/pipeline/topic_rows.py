"""The query that copies a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def copy_what_is_there(
    spark: SparkSession, form: str, bootstrap: str, source: str, target: str, checkpoint: Path
) -> None:
    """Run a stream by the connector ``form`` from topic to topic, in micro-batches of 60, until it
    has copied what is there; from its checkpoint on, if it has one.
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
