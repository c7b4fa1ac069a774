"""Reading a topic in Spark from segment files and from an archive gives the same rows as from
brokers, with kstore's source and with Spark's own Kafka connector.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kstore.clients import AdminClient, NewTopic
from kstore.pipeline.jobs.archive import ArchiveOptions, archive
from kstore.testing.brokers import Broker
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.conftest import write_all_kinds
from tests.pipeline.topic_rows import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.java]

TOPIC = "files"
COUNT = 600


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Records of all types, in batches of many sizes, some of them compressed."""
    with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=3, configs=KEEP)])
    for codec in ("none", "lz4", "zstd"):
        write_all_kinds(broker, TOPIC, range(COUNT // 3), compression_type=codec)
    return TOPIC


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, connector: None, broker: Broker, topic: str
) -> list[tuple[Any, ...]]:
    """The rows of Spark's own connector."""
    return _rows(read(spark, broker, "kafka", subscribe=topic, includeHeaders="true"))


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[3], row[4]))


def _files(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    reader = spark.read.format("kstore").option("path", str(path))
    return reader.options(subscribe=TOPIC, includeHeaders="true", **options).load()


def test_segments_give_what_the_broker_gives(
    spark: SparkSession, broker: Broker, expected: list[tuple[Any, ...]]
) -> None:
    assert len(expected) == COUNT
    assert _rows(_files(spark, broker.folder / "data")) == expected
    assert _rows(_files(spark, broker.folder / "data", minPartitions="7")) == expected


def test_filters_choose_ranges_of_segments(
    spark: SparkSession, broker: Broker, expected: list[tuple[Any, ...]]
) -> None:
    frame = _files(spark, broker.folder / "data").where(
        "partition = 1 and offset between 20 and 90"
    )
    assert _rows(frame) == [row for row in expected if row[3] == 1 and 20 <= row[4] <= 90]


def test_only_the_columns_that_the_schema_names_are_sent(
    spark: SparkSession, broker: Broker, expected: list[tuple[Any, ...]]
) -> None:
    reader = spark.read.format("kstore").schema("value BINARY, partition INT")
    frame = reader.load(str(broker.folder / "data"), subscribe=TOPIC)
    assert sorted(map(repr, frame.collect())) == sorted(
        f"Row(value={row[1]!r}, partition={row[3]})" for row in expected
    )


def test_an_archive_gives_what_the_broker_gives(
    spark: SparkSession, broker: Broker, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    archive(
        spark, ArchiveOptions(settings, str(tmp_path), re.compile(TOPIC), tasks=2), lambda _: None
    )
    assert _rows(_files(spark, tmp_path)) == expected
    assert _rows(_files(spark, tmp_path, minPartitions="10")) == expected
    chosen = _files(spark, tmp_path, startingTimestamp="1600360000000")
    first = {p: min(r[4] for r in expected if r[3] == p and r[5].timestamp() >= 1600360000)
             for p in range(3)}  # fmt: skip
    assert _rows(chosen) == [row for row in expected if row[4] >= first[row[3]]]


def test_a_damaged_segment_is_named_in_the_driver(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / f"{topic}-0"
    folder.mkdir()
    name = "0" * 20 + ".log"
    data = bytearray((broker.folder / "data" / folder.name / name).read_bytes())
    data[80] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(Exception, match=rf"topic {topic}, partition 0, offset 0: segment .*{name}"):
        _files(spark, tmp_path).count()
