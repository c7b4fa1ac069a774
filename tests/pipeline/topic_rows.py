"""What is in a topic, by kstore's own consumer: the judge of what Spark has written. And the query
that copies a topic.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kstore.clients import AdminClient, Consumer
from kstore.clients.consumer import ConsumerRecord
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def records_of(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """All records of the topic, up to the ends that its partitions have now."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        partitions = admin.describe_topics([topic])[0].partitions
        tps = [TopicPartition(topic, index) for index in range(len(partitions))]
        ends = admin.list_offsets(dict.fromkeys(tps, "latest"))
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        while any(consumer.position(tp) < end.offset for tp, end in ends.items()):
            found += consumer.poll(1000)
    return found


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    """The values alone, sorted: each should be there once."""
    return sorted(record.value or b"" for record in records_of(bootstrap, topic))


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
