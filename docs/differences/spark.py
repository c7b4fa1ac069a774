"""Differences between the format `kstore` in Spark and Spark's own connector for Kafka."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["SINK", "SOURCE"]

SOURCE = (
    Difference(
        "Continuous processing, `offsetsBehindLatest` in a source's metrics, the consumer cache "
        "(`spark.kafka.consumer.cache.*`), delegation tokens",
        "Supported.",
        "Not supported. Progress shows the latest offsets; executors keep their connections.",
        "PySpark's data sources have no interface for them.",
    ),
    Difference(
        "`subscribePattern`", "A Java expression.", "A Python expression.", "It runs in Python."
    ),
    Difference(
        "Unknown options, offsets that do not exist, unknown `kafka.*` settings",
        "Ignored, or an error in an executor.",
        "An error at once.",
        "A spelling mistake is found before the job runs.",
    ),
    Difference(
        "`groupIdPrefix`, `kafka.group.id`",
        "Name the consumer group.",
        "Accepted; no group is used.",
        "The source does not use a consumer group.",
    ),
    Difference(
        "`kafka.client.rack`",
        "Reads from the nearest replica.",
        "No effect: records are read from leaders.",
        "Not built yet.",
    ),
    Difference(
        "An upper bound on `timestamp`",
        "Filters do not shorten what is fetched.",
        "A lower bound shortens what is fetched; an upper bound does not.",
        "Timestamps from producers can go backwards.",
    ),
    Difference(
        "Checkpoints",
        "Its own JSON.",
        "Its own JSON: a query cannot continue from a checkpoint of the format `kafka`. Start it "
        "with `startingOffsets` at the offsets where the other query stopped.",
        "Spark stores what each source returns.",
    ),
    Difference(
        "Columns that the query does not use",
        "Are not sent out of the JVM.",
        "Are sent from Python to the JVM, unless the schema names the columns: "
        '`.schema("value BINARY")`.',
        "Spark does not tell a Python source which columns a query needs.",
    ),
    Difference(
        "`path`: segment files and archives",
        "Not supported.",
        "Read in batch queries, from local or mounted file systems: not in streams, and not from "
        "object stores or HDFS. A follower's files can end with records that are not committed "
        "yet.",
        "The files are read in place.",
    ),
)

SINK = (
    Difference(
        "A batch without `mode(...)`",
        "Appends.",
        'An error: write `mode("append")`.',
        "PySpark's sinks have another default.",
    ),
    Difference(
        "A topic that grows while rows are staged",
        "The producer's partitioner chooses the partition of each row.",
        "Rows go to the partitions that existed when they were staged (KIP-253).",
        "The rows were partitioned at that time.",
    ),
    Difference(
        "Exactly once, if records of a partly written batch are deleted before its driver is back",
        "Does not support exactly once.",
        "The query stops with an error.",
        "kstore no longer knows which records belong to the batch.",
    ),
    Difference(
        "A batch job without `kstore.writeId` whose driver dies while it writes",
        "Part of the rows is written.",
        "Part of the rows is written.",
        "Without an id the next run cannot find the rows of the first one.",
    ),
)
