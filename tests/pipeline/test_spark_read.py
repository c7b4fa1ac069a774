"""Reads in a real Spark from a real broker, beside Spark's own Kafka connector: the same rows in
the same schema, checkpoints that survive restarts, and errors that reach the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.testing.brokers import Broker
from tests.pipeline.reading import write
from tests.pipeline.topic_rows import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
WAIT_S = 240
MakeTopic = Callable[..., str]


def test_the_same_rows_in_the_same_schema_as_sparks_own_connector(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(3, **{"retention.ms": "-1"})
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(300):
            producer.send(
                topic,
                None if number % 7 == 0 else b"v%d" % number,
                None if number % 5 == 0 else b"k%d" % number,
                headers=[("h", b"x"), ("h", None)] if number % 3 == 0 else None,
                timestamp=1_700_000_000_000 + number,
            )
        producer.flush()
    for headers in ("false", "true"):
        options = {"subscribe": topic, "includeHeaders": headers, "minPartitions": "5"}
        ours, theirs = (read(spark, broker, kind, **options) for kind in ("kstore", "kafka"))
        assert ours.schema == theirs.schema
        by_offset = [frame.orderBy("partition", "offset").collect() for frame in (ours, theirs)]
        assert by_offset[0] == by_offset[1]
        assert len(by_offset[0]) == 300
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()


def test_filters_are_pushed_down_where_spark_allows_it_and_hold_where_not(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        write(broker.bootstrap_servers, topic, range(20), partition)
    expected = [(1, offset) for offset in range(5, 10)]
    where = "partition = 1 and offset between 5 and 9 and timestamp > '2020-01-01'"
    for enabled, tasks in (("false", 3), ("true", 1)):
        spark.conf.set(PUSHDOWN, enabled)
        try:
            found = read(spark, broker, "kstore", subscribe=topic).where(where)
            rows = found.select("partition", "offset").orderBy("offset").collect()
            assert [tuple(row) for row in rows] == expected
            assert found.rdd.getNumPartitions() == tasks
        finally:
            spark.conf.set(PUSHDOWN, "true")


def test_a_schema_of_some_columns_is_all_that_is_read(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(4))
    reader = spark.read.format("kstore").schema("value BINARY").option("subscribe", topic)
    frame = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    assert frame.columns == ["value"]
    assert [int(row.value) for row in frame.collect()] == [0, 1, 2, 3]


def test_values_as_text_are_what_a_cast_makes_of_them(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    values = [b"plain", "\u00e9".encode(), b"\xff no text \xc3", b"", None]
    with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, key=b"k")
    reader = spark.read.format("kstore").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    cast = reader.load().selectExpr("cast(key as string) key", "cast(value as string) value")
    text = reader.schema("key STRING, value STRING").load()
    assert text.dtypes == [("key", "string"), ("value", "string")]
    in_hex = ["key", "hex(cast(value as binary)) value"]
    rows = text.selectExpr(*in_hex).collect()
    assert rows == cast.selectExpr(*in_hex).collect()
    assert [row.value for row in rows] == [v if v is None else v.hex().upper() for v in values]


def stream(
    spark: SparkSession, broker: Broker, topic: str, folder: Path, **options: Any
) -> StreamingQuery:
    """A query that writes Parquet until it has read what was there when it began."""
    given = {"subscribe": topic, "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "10"}
    reader = spark.readStream.format("kstore").options(**(given | options))
    frame = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    writer = frame.writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def finished(query: StreamingQuery) -> list[int]:
    """The number of rows of each micro-batch, when the query has ended."""
    assert query.awaitTermination(WAIT_S)
    return [progress["numInputRows"] for progress in query.recentProgress]


def places(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    """Partition and offset of each written row."""
    rows = spark.read.parquet(str(folder / "rows")).select("partition", "offset").collect()
    return sorted(tuple(row) for row in rows)


def test_a_stream_goes_on_from_its_checkpoint_and_takes_in_new_partitions(
    spark: SparkSession, broker: Broker, admin: AdminClient, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1)
    servers = broker.bootstrap_servers
    write(servers, topic, range(100))
    limits = {"maxOffsetsPerTrigger": "60"}
    assert finished(stream(spark, broker, topic, tmp_path, **limits)) == [60, 40]
    write(servers, topic, range(100, 110))
    admin.create_partitions({topic: 2})
    write(servers, topic, range(5), partition=1)
    assert finished(stream(spark, broker, topic, tmp_path)) == [10, 5], "one after the other"
    expected = [(0, offset) for offset in range(110)] + [(1, offset) for offset in range(5)]
    assert places(spark, tmp_path) == expected


def test_a_topic_made_anew_ends_the_query_with_the_way_out(
    spark: SparkSession, broker: Broker, admin: AdminClient, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(3))
    finished(stream(spark, broker, topic, tmp_path))
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    write(broker.bootstrap_servers, topic, range(8))
    message = rf"topic {topic}, partition 0, offset 3: the topic was deleted and created again"
    with pytest.raises(PySparkException, match=message):
        stream(spark, broker, topic, tmp_path).awaitTermination(WAIT_S)
    options = {"kstore.recreatedTopics": "restart"}
    assert finished(stream(spark, broker, topic, tmp_path, **options)) == [8]


def said_first(call: Callable[[], object]) -> tuple[str, str]:
    """The first line of an error in Spark: its last [CONDITION] and our message, without a
    traceback before or after it.
    """
    with pytest.raises(PySparkException) as raised:
        call()
    assert "Traceback" not in str(raised.value)
    line = str(raised.value).splitlines()[0]
    found = re.search(r"\[(\w+)\] [^\[]*: kstore\.pipeline\.errors\.PipelineError: (.*)$", line)
    assert found, line
    return found[1], found[2]


def missing(broker: Broker) -> str:
    """The error for a topic that does not exist."""
    return (
        f"topic no-such-topic: the brokers at {broker.bootstrap_servers} do not have this topic."
        " Create the topic, or correct its name in the options."
    )


def test_an_unknown_topic_of_a_stream_is_told_without_a_traceback(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    options = {"subscribe": "no-such-topic"}
    assert said_first(lambda: finished(stream(spark, broker, "x", tmp_path, **options))) == (
        "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR", missing(broker),
    )  # fmt: skip


def test_what_is_wrong_is_told_in_the_driver(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    quick = {"fetchOffset.retryIntervalMs": "10"}
    with pytest.raises(PySparkException, match="no option 'subscribes'; the nearest is subscribe"):
        read(spark, broker, "kstore", subscribes="a")
    assert said_first(read(spark, broker, "kstore", subscribe="no-such-topic").collect) == (
        "PYTHON_DATA_SOURCE_ERROR", missing(broker)
    )  # fmt: skip
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1 did not report"):
        read(
            spark, broker, "kstore",
            **{"subscribe": "a", "kafka.bootstrap.servers": "127.0.0.1:1"} | quick,
        ).collect()  # fmt: skip
    topic = make_topic(1)
    offsets = f'{{"{topic}": {{"0": 7}}}}'
    with pytest.raises(
        PySparkException, match=f"topic {topic}, partition 0, offset 7: .*does not exist"
    ):
        read(spark, broker, "kstore", subscribe=topic, startingOffsets=offsets).collect()


def test_the_source_can_be_registered_too(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    from kstore.pipeline.source import KstoreDataSource

    spark.dataSource.register(KstoreDataSource)
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(4))
    assert read(spark, broker, "kstore", subscribe=topic).count() == 4
