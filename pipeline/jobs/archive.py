"""The job archive: writes topics of a cluster as Parquet, by topic and time, with offsets and
epochs. Each run continues where the last one stopped. layout.py describes the archive's files.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.layout import (
    PARTITIONED_BY,
    Slice,
    data_path,
    entries,
    read_slices,
    write_slices,
)
from kstore.pipeline.jobs.scans.brokers import Brokers, Partition, Topic
from kstore.pipeline.jobs.scans.scan import Range, Scan, scan, split
from kstore.pipeline.jobs.topics import set_configs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ArchiveOptions", "archive", "check_alone", "task_count"]

TASKS_PER_CORE = 3


@dataclass(frozen=True)
class ArchiveOptions:
    """`topics` matches whole names; `settings` are a consumer's, for the cluster."""

    settings: Mapping[str, Any]
    path: str
    topics: re.Pattern[str]
    hourly: bool = False
    """Parquet folders by hour, not by day."""
    read_committed: bool = True
    on_loss: str = "fail"
    """fail or skip, if the cluster has deleted records that are not archived yet."""
    tasks: int = 0
    """The approximate number of tasks; 0: depends on Spark's cores."""


def task_count(spark: SparkSession, asked: int) -> int:
    """The number of tasks."""
    return asked or TASKS_PER_CORE * max(int(spark.sparkContext.defaultParallelism), 1)


def archive(
    spark: SparkSession, options: ArchiveOptions, report: Callable[[str], None]
) -> list[Slice]:
    """Archive the records of the topics that the archive does not have yet. Returns the slices of
    this run; empty if there was nothing new.

    Raises JobError, and PipelineError from a task.
    """
    known = read_slices(spark, options.path, must_exist=False)
    with Brokers(options.settings, read_committed=options.read_committed) as brokers:
        topics = brokers.topics(options.topics)
        cluster_id = brokers.cluster_id
    if not topics:
        raise JobError(
            f"no topic of the cluster matches {options.topics.pattern!r}: see `kstore topic list`"
        )
    parts = [
        _to_archive(topic, part, [s for s in known if s.topic == topic.name], options, report)
        for topic in topics
        for part in topic.partitions
    ]
    ranges = [part for part in parts if part.size]
    if not ranges:
        return []
    run = time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + uuid.uuid4().hex[:8]
    size = sum(part.size for part in ranges)
    report(f"run {run}: {size} offsets of {len(ranges)} partitions")
    _write(spark, options, ranges, run)
    slices = _slices(spark, options, topics, ranges, run, cluster_id)
    check_alone(options.path, slices, read_slices(spark, options.path, must_exist=False))
    write_slices(spark, options.path, slices)
    return slices


def check_alone(path: str, ours: list[Slice], there: list[Slice]) -> None:
    """Check that no other run has archived the same offsets in the meantime."""
    ends = {(each.topic, each.partition): each.end for each in there}
    for each in ours:
        if ends.get((each.topic, each.partition), each.start) > each.start:
            raise JobError(
                f"another run has archived topic {each.topic}, partition {each.partition} into "
                f"{path} meanwhile: this run does not count. Run only one at a time per "
                "archive"
            )


def _to_archive(
    topic: Topic,
    part: Partition,
    known: list[Slice],
    options: ArchiveOptions,
    report: Callable[[str], None],
) -> Range:
    """The new offsets of a partition. Its topic must be the archived one."""
    for each in known:
        _check_life(topic, each, options.path)
    ends = [each.end for each in known if each.partition == part.partition]
    at = max(ends, default=part.start)
    if at > part.end:
        raise JobError(
            f"topic {part.topic}, partition {part.partition}: the archive reaches to offset {at}, "
            f"the cluster only to {part.end}: it has lost records, or is another cluster; nothing "
            "was archived. Archive it to another folder"
        )
    if at < part.start:
        said = (
            f"topic {part.topic}, partition {part.partition}: the cluster has deleted offsets {at} "
            f"to {part.start - 1}, which are not archived"
        )
        if options.on_loss == "fail":
            raise JobError(f"{said}; --on-loss=skip continues at {part.start}")
        report(f"{said}; continuing at {part.start}")
        at = part.start
    return Range(part.topic, part.partition, at, part.end)


def _check_life(topic: Topic, known: Slice, path: str) -> None:
    """Check that the topic is the one that was archived (KIP-232), not a later one of that name."""
    same_id = not known.topic_id or not topic.topic_id or known.topic_id == topic.topic_id
    if same_id:
        return
    raise JobError(
        f"topic {topic.name}: it was deleted and created again since it was archived in {path} "
        f"(topic id {known.topic_id} there, {topic.topic_id} now): archive it to another folder, or"
        " rename this one; nothing was archived"
    )


def _write(spark: SparkSession, options: ArchiveOptions, ranges: list[Range], run: str) -> None:
    plan = Scan(options.settings, read_committed=options.read_committed, hourly=options.hourly)
    found = scan(spark, plan, split(ranges, task_count(spark, options.tasks)))
    # A format that other programs also read; Spark's default is its own.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # In this order Spark need not sort again for its folders, and each file is sorted by offset.
    found.sortWithinPartitions(*PARTITIONED_BY, "partition", "offset").write.partitionBy(
        *PARTITIONED_BY
    ).option("compression", "zstd").parquet(data_path(options.path, run))


def _slices(
    spark: SparkSession,
    options: ArchiveOptions,
    topics: list[Topic],
    ranges: list[Range],
    run: str,
    cluster_id: str,
) -> list[Slice]:
    from pyspark.sql.functions import bit_xor, expr
    from pyspark.sql.functions import sum as total

    read = entries(spark, options.path, [run], "block", "hole").groupBy("topic", "partition")
    sums = {
        (row.topic, row.partition): (row.records or 0, row.digest or 0, row.missing or 0)
        for row in read.agg(
            total("records").alias("records"),
            bit_xor("digest").alias("digest"),
            expr("sum(endOffset - offset) filter (where entry = 'hole')").alias("missing"),
        ).collect()
    }
    configs = set_configs(options.settings, [topic.name for topic in topics])
    by_name = {topic.name: topic for topic in topics}
    now = int(time.time() * 1000)
    slices = []
    for part in ranges:
        at = (part.topic, part.partition)
        topic = by_name[part.topic]
        records, digest, missing = sums.get(at, (0, 0, 0))
        slices.append(
            Slice(
                run=run,
                topic=part.topic,
                topic_id=topic.topic_id,
                partition=part.partition,
                partitions=len(topic.partitions),
                start=part.start,
                end=part.end,
                records=records,
                missing=missing,
                digest=digest,
                partition_epoch=topic.partitions[part.partition].partition_epoch,
                cluster_id=cluster_id,
                read_committed=options.read_committed,
                configs=json.dumps(configs.get(part.topic, {})),
                archived_ms=now,
            )
        )
        _check_complete(slices[-1])
    return slices


def _check_complete(found: Slice) -> None:
    """Every offset of the slice must have a record or be a hole: otherwise the run does not
    count.
    """
    if found.records + found.missing != found.end - found.start:
        raise JobError(
            f"topic {found.topic}, partition {found.partition}: offsets {found.start} to "
            f"{found.end - 1} gave {found.records} records and {found.missing} offsets without one;"
            " the run was not taken into the archive. This is a defect of kstore: please report it"
        )
