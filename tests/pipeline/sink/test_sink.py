"""`df.write` and `df.writeStream` with format kstore, in a real Spark: columns and options as in
Spark's Kafka connector, restarts from a checkpoint, and errors that name what to do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.clients import AdminClient
from kstore.clients.admin.topics import NewTopic
from kstore.testing.brokers import Broker
from tests.beside.topic_records import records_of, values_of
from tests.pipeline.topic_rows import copy_what_is_there, expected, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic(3)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("cast(id as string) as value")


def test_every_column_of_the_connector_is_written(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    rows = spark.sql(
        f"""select * from values
        ('{topic}', 'a', cast('1' as binary), 2, array(named_struct('key', 'h', 'value', X'01'))),
        ('{topic}', null, null, 0, null),
        ('{topic}', 'b', cast('2' as binary), null, array())
        as t(topic, key, value, partition, headers)"""
    )
    write(rows, broker, "kstore")
    found = {record.key: record for record in records_of(broker.bootstrap_servers, topic)}
    first, second, third = found[b"a"], found[None], found[b"b"]
    assert (first.value, first.partition, list(first.headers)) == (b"1", 2, [("h", b"\x01")])
    assert (second.value, second.partition) == (None, 0)
    assert (third.value, list(third.headers)) == (b"2", [])


def test_the_option_topic_wins_over_the_column_and_keys_choose_as_in_java(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    write(
        spark.range(50).selectExpr(
            "'nowhere' as topic", "cast(id as string) as key", "'v' as value"
        ),
        broker,
        "kstore",
        topic=topic,
    )
    from kstore.clients.core.producer.partitioner import partition_for_key

    found = records_of(broker.bootstrap_servers, topic)
    assert len(found) == 50
    assert all(each.partition == partition_for_key(each.key or b"", 3) for each in found)


def test_nothing_of_a_failed_job_is_in_the_topic(
    spark: SparkSession, broker: Broker, topic: str, admin: AdminClient
) -> None:
    rows = spark.range(0, 1000, 1, 4).selectExpr(
        "if(id = 990, cast(raise_error('a bad row') as string), cast(id as string)) as value"
    )
    before = set(admin.list_topics(internal=True))
    with pytest.raises(Exception, match="a bad row"):
        write(rows, broker, "kstore", topic=topic)
    assert records_of(broker.bootstrap_servers, topic) == []
    assert set(admin.list_topics(internal=True)) <= before | {topic}


def test_a_named_job_is_written_once_however_often_it_runs(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    name = uuid.uuid4().hex
    for version in (7, 7, 8, 7):
        once = {"kstore.writeId": name, "kstore.writeVersion": version}
        write(numbers(spark, 10 * version), broker, "kstore", topic=topic, **once)
    assert values_of(broker.bootstrap_servers, topic) == expected(range(70), range(80))


def test_settings_of_clients_are_passed_through(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    options = {"kafka.compression.type": "lz4", "kstore.delivery": "at-least-once"}
    write(numbers(spark, 100), broker, "kstore", topic=topic, **options)
    write(numbers(spark, 100), broker, "kstore", topic=topic, **{"kafka.compression.type": "zstd"})
    assert values_of(broker.bootstrap_servers, topic) == expected(range(100), range(100))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("'v' as value", {}, "Set the option topic"),
        ("'v' as key", {"topic": "t"}, "but no value"),
        ("1 as value", {"topic": "t"}, "column value is int; it must be string or binary"),
        ("'v' as value", {"topic": "t", "kafka.acks": "1"}, "exactly once needs all"),
        ("'v' as value", {"topic": "t", "kafka.lingerms": "1"}, "did you mean linger.ms"),
        ("'v' as value", {"topic": "t", "kafka.transactional.id": "x"}, "not allowed for a sink"),
        ("'v' as value", {"topic": "t", "kstore.delivery": "twice"}, "exactly-once or at-least"),
        ("'v' as value", {"topic": "t", "kstore.writeId": "x"}, "Set both or neither"),
        ("'v' as value, -1 as partition", {"topic": "t"}, "partition is -1"),
        ("'v' as value, 99 as partition", {"topic": "t"}, "Correct the rows' column partition"),
        ("cast(null as string) as topic, 'v' as value", {}, "topic is null"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(
    spark: SparkSession, broker: Broker, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        write(spark.sql(f"select {columns}"), broker, "kstore", **options)


def test_a_stream_goes_on_from_its_checkpoint_and_repeats_nothing(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, admin: AdminClient
) -> None:
    source = f"{topic}-source"
    admin.create_topics([NewTopic(source, 2)])

    def run() -> None:
        checkpoint = tmp_path / "checkpoint"
        copy_what_is_there(spark, "kstore", broker.bootstrap_servers, source, topic, checkpoint)

    write(numbers(spark, 100), broker, "kstore", topic=source)
    run()
    assert values_of(broker.bootstrap_servers, topic) == expected(range(100))
    # As if the driver died before it recorded the batch in its checkpoint.
    for said in (tmp_path / "checkpoint" / "commits").iterdir():
        if said.name.lstrip(".").split(".")[0] != "0":
            said.unlink()
    write(numbers(spark, 50), broker, "kstore", topic=source)
    run()
    assert values_of(broker.bootstrap_servers, topic) == expected(range(100), range(50))
