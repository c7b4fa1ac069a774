"""Verification of real clusters and archives that are equal, and of some that are not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.clients.replicator import ReplicationOptions
from kstore.pipeline.jobs.archive import ArchiveOptions, archive
from kstore.pipeline.jobs.replicate import ReplicateOptions, replicate, share_out
from kstore.pipeline.jobs.verification.compare import (
    Block,
    Finding,
    block_findings,
    record_findings,
)
from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide
from kstore.pipeline.jobs.verification.verify import Verification, VerifyOptions, verify
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.pipeline.jobs.conftest import settings, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = ("t", 0)


def side(*offsets: int, other: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """Offsets with hashes; the offsets in `other` have another hash."""
    hashes = [offset * 31 + (offset in other) for offset in offsets]
    return np.array(offsets, np.int64), np.array(hashes, np.int64)


def test_equal_records_give_no_finding() -> None:
    assert record_findings(PLACE, side(0, 1, 5), side(5, 0, 1)) == []


def test_each_difference_has_its_kind_and_its_run() -> None:
    found = record_findings(
        PLACE, side(0, 1, 2, 3, 4, 7, 8, 8, 8), side(0, 3, 4, 8, 20, 21, other=(3, 4))
    )
    assert found == [
        Finding("doubled", "t", 0, 8, 9, 2, "left"),
        Finding("missing", "t", 0, 1, 3, 2, "right"),
        Finding("missing", "t", 0, 7, 8, 1, "right"),
        Finding("extra", "t", 0, 20, 22, 2, "left"),
        Finding("different", "t", 0, 3, 5, 2, "both"),
    ]


def test_only_blocks_with_unequal_sums_are_looked_at() -> None:
    one = {0: Block(0, 9, 9, 1, 0), 1: Block(9, 20, 11, 2, 0), 2: Block(20, 21, 1, 3, 0)}
    other = {0: Block(0, 9, 9, 1, 7), 1: Block(9, 20, 11, 4, 0), 3: Block(30, 32, 2, 3, 0)}
    lacking, unequal = block_findings(PLACE, one, other)
    assert [(f.kind, f.start, f.end, f.records, f.side) for f in lacking] == [
        ("missing", 20, 21, 1, "right"), ("extra", 30, 32, 2, "left"),
    ]  # fmt: skip
    assert unequal == [1]


def test_shares_are_about_equal_and_leave_out_what_is_copied() -> None:
    lags = {TopicPartition("t", n): (lag, 100 + n) for n, lag in enumerate((9, 0, 5, 4, -3, 1))}
    shares = share_out(lags, 2)
    assert [share.parts for share in shares] == [
        (("t", 0, 100), ("t", 5, 105)), (("t", 2, 102), ("t", 3, 103)),
    ]  # fmt: skip
    assert share_out({}, 4) == []


# ---- with Spark and brokers ----


def write(broker: Broker, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Records with fixed timestamps, so that two clusters can have equal ones."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n, value in enumerate(values):
            producer.send(topic, value, b"k%d" % (n % 7), partition=partition, timestamp=n)


def verified(
    spark: SparkSession | None, left: Any, right: Any, topics: str, **more: Any
) -> Verification:
    return verify(spark, VerifyOptions(re.compile(topics), left, right, **more), silent)


def told(found: Verification) -> list[tuple[Any, ...]]:
    """The findings without details."""
    return [(f.kind, f.topic, f.partition, f.start, f.end, f.records, f.side)
            for f in found.findings]  # fmt: skip


@pytest.fixture(scope="module")
def filled(broker: Broker, target: Broker) -> Iterator[None]:
    """Topics on both clusters: equal and different ones."""
    values = [b"%d" % n for n in range(12_000)]
    for each in (broker, target):
        with AdminClient(bootstrap_servers=each.bootstrap_servers) as admin:
            # The records are from 1970.
            keep = {"retention.ms": "-1"}
            admin.create_topics(
                [NewTopic("v-same", 2, configs=keep), NewTopic("v-off", 1, configs=keep)]
            )
        write(each, "v-same", values)
        write(each, "v-same", values[:50], 1)
    write(broker, "v-off", values[:30])
    write(target, "v-off", [*values[:10], b"other", *values[11:25]])
    return


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.java)])
def test_equal_clusters_are_equal_and_others_are_told_apart_record_by_record(
    engine: str, broker: Broker, target: Broker, filled: None, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    left, right = ClusterSide(settings(broker)), ClusterSide(settings(target))
    found = verified(spark, left, right, "v-.*")
    assert told(found) == [
        ("different", "v-off", 0, 10, 11, 1, "both"),
        ("behind", "v-off", 0, 25, 30, 5, "right"),
    ]
    same = [s for s in found.summaries if s.topic == "v-same"]
    assert [(s.left_records, s.right_records, s.blocks, s.blocks_equal) for s in same] == [
        (12_000, 12_000, 2, 2), (50, 50, 1, 1),
    ]  # fmt: skip
    assert all(s.left_digest == s.right_digest != 0 for s in same)


@pytest.mark.slow
@pytest.mark.java
def test_a_damaged_archive_is_found_out(
    spark: SparkSession, broker: Broker, filled: None, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    options = ArchiveOptions(settings(broker), str(tmp_path), re.compile("v-same"), tasks=1)
    archive(spark, options, silent)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("v-same", b"later", partition=1)
    cluster, side = ClusterSide(settings(broker)), ArchiveSide(str(tmp_path))
    found = verified(spark, cluster, side, "v-same", behind_allowed=True)
    assert told(found) == []
    assert found.notes == ["v-same-1: 1 records are not copied yet"]

    # A file is rewritten: one record missing, one changed, one duplicated.
    (path,) = (
        path
        for path in tmp_path.glob("data/*/entry=record/topic=v-same/*/*.parquet")
        if pq.read_table(path, columns=["partition"])["partition"][0].as_py() == 1
    )
    rows = pq.ParquetFile(path).read()
    values = rows["value"].to_pylist()
    values[20] = b"changed"
    rows = rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values))
    pq.write_table(pa.concat_tables([rows.slice(0, 30), rows.slice(31), rows.slice(7, 1)]), path)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    found = verified(spark, cluster, side, "v-same", behind_allowed=True)
    assert told(found) == [
        ("damaged", "v-same", 1, 0, 50, 1, "right"),
        ("doubled", "v-same", 1, 7, 8, 1, "right"),
        ("different", "v-same", 1, 20, 21, 1, "both"),
        ("missing", "v-same", 1, 30, 31, 1, "right"),
    ]
    assert told(verified(spark, side, None, "v-same")) == [
        ("damaged", "v-same", 1, 0, 50, 1, "left")
    ]


@pytest.mark.slow
@pytest.mark.java
def test_replication_on_spark_makes_what_verifies(
    spark: SparkSession, broker: Broker, target: Broker
) -> None:
    with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        keep = {"retention.ms": "-1"}
        wanted = [NewTopic("copied-a", 2, configs=keep), NewTopic("copied-b", 1, configs=keep)]
        admin.create_topics(wanted)
        for topic in ("copied-a", "copied-b"):
            write(broker, topic, [b"%d" % n for n in range(500)])
        admin.delete_records({("copied-b", 0): 100})
        admin.alter_group_offsets("copied-readers", {TopicPartition("copied-a", 0): 321})
    copying = ReplicationOptions(re.compile("copied-.*"), groups=re.compile("copied-readers"))
    options = ReplicateOptions(settings(broker), settings(target), copying, tasks=2)
    done = replicate(spark, options, silent, silent)
    assert (done.partitions, done.records, done.group_offsets) == (3, 900, 1)
    assert (done.losses, done.problems) == ([], [])
    write(broker, "copied-a", [b"x"] * 10, 1)
    again = replicate(spark, options, silent, silent)
    assert (again.records, again.problems) == (10, [])
    with AdminClient(bootstrap_servers=target.bootstrap_servers) as admin:
        committed = admin.list_group_offsets("copied-readers")
    assert {tp: at.offset for tp, at in committed.items()} == {TopicPartition("copied-a", 0): 321}
    left, right = ClusterSide(settings(broker)), ClusterSide(settings(target))
    assert told(verified(spark, left, right, "copied-.*")) == []
