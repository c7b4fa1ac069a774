"""Spark's own Kafka connector (spark-sql-kafka-0-10), unmodified, with a kstore broker: batches,
bounds, headers, streams and their restart from a checkpoint; and beside kstore's connector.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.clients import AdminClient
from kstore.clients.admin.topics import NewPartitions
from kstore.testing.brokers import Broker
from tests.beside.topic_records import values_of
from tests.pipeline.topic_rows import copy_what_is_there, expected, read, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture
def topic(connector: None, make_topic: Callable[..., str]) -> str:
    return make_topic(2)


def numbers(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 2).selectExpr(
        "cast(id as string) as key",
        "cast(id as string) as value",
        "cast(id % 2 as int) as partition",
    )


def values(df: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in df.select("value").collect())


def test_batches_are_written_and_read(spark: SparkSession, broker: Broker, topic: str) -> None:
    write(
        numbers(spark, 0, 500), broker, "kafka", topic=topic, **{"kafka.compression.type": "zstd"}
    )
    assert values_of(broker.bootstrap_servers, topic) == expected(range(500))
    assert values(read(spark, broker, "kafka", subscribe=topic)) == expected(range(500))
    pattern = read(spark, broker, "kafka", subscribePattern=f"{topic}.*", minPartitions=6)
    assert pattern.rdd.getNumPartitions() >= 6
    assert values(pattern) == expected(range(500))


def test_bounds_by_offset_and_by_time(spark: SparkSession, broker: Broker, topic: str) -> None:
    write(numbers(spark, 0, 100), broker, "kafka", topic=topic)
    some = read(
        spark,
        broker,
        "kafka",
        assign=json.dumps({topic: [0, 1]}),
        startingOffsets=json.dumps({topic: {"0": 10, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 20, "1": 5}}),
    )
    assert some.groupBy("partition").count().orderBy("partition").collect() == [(0, 10), (1, 5)]
    all_of = read(spark, broker, "kafka", subscribe=topic, startingTimestamp="1")
    none = {"startingTimestamp": str(2**42), "startingOffsetsByTimestampStrategy": "latest"}
    assert all_of.count() == 100
    assert read(spark, broker, "kafka", subscribe=topic, **none).count() == 0


def test_headers_and_the_columns_of_a_record(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    rows = spark.sql(
        "select 'k' as key, cast(null as string) as value, "
        "array(named_struct('key', 'h', 'value', X'0102')) as headers"
    )
    write(rows, broker, "kafka", topic=topic, includeHeaders="true")
    for form in ("kafka", "kstore"):
        (row,) = read(spark, broker, form, subscribe=topic, includeHeaders="true").collect()
        assert (bytes(row.key), row.value, row.topic, row.offset) == (b"k", None, topic, 0)
        assert (row.headers[0].key, bytes(row.headers[0].value)) == ("h", b"\x01\x02")
        assert row.timestampType == 0


def test_both_connectors_read_the_same(spark: SparkSession, broker: Broker, topic: str) -> None:
    write(numbers(spark, 0, 300), broker, "kafka", topic=topic)
    theirs, ours = (read(spark, broker, form, subscribe=topic) for form in ("kafka", "kstore"))
    assert theirs.schema == ours.schema
    assert sorted(map(str, theirs.collect())) == sorted(map(str, ours.collect()))


def test_a_stream_starts_again_from_its_checkpoint(
    spark: SparkSession, broker: Broker, topic: str, admin: AdminClient, tmp_path: Path
) -> None:
    from pyspark.sql.functions import lit

    target = f"{topic}-target"

    def run() -> None:
        checkpoint = tmp_path / "checkpoint"
        copy_what_is_there(spark, "kafka", broker.bootstrap_servers, topic, target, checkpoint)

    write(numbers(spark, 0, 100), broker, "kafka", topic=topic)
    run()
    assert values_of(broker.bootstrap_servers, target) == expected(range(100))
    admin.create_partitions({topic: NewPartitions(4)})
    write(numbers(spark, 100, 150), broker, "kafka", topic=topic)
    rows = numbers(spark, 150, 160).withColumn("partition", lit(3))  # the new record
    write(rows, broker, "kafka", topic=topic)
    run()
    assert values_of(broker.bootstrap_servers, target) == expected(range(160))


def test_records_that_are_gone_fail_the_query_or_are_left_out(
    spark: SparkSession, broker: Broker, topic: str, admin: AdminClient
) -> None:
    from kstore.types import TopicPartition

    write(numbers(spark, 0, 100), broker, "kafka", topic=topic)
    admin.delete_records({TopicPartition(topic, 0): 30})
    from_zero = {"startingOffsets": json.dumps({topic: {"0": 0, "1": 0}})}
    with pytest.raises(Exception, match=topic):
        read(spark, broker, "kafka", subscribe=topic, **from_zero).count()
    left = read(spark, broker, "kafka", subscribe=topic, failOnDataLoss="false", **from_zero)
    assert left.count() == 70
