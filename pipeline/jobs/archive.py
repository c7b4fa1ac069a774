"""The job archive: writes topics of a cluster as Parquet, by topic and time, with offsets and
epochs. Each run continues where the last one stopped. layout.py describes the archive's files.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from kstore.pipeline.jobs.local_files import RunFiles, forget_run
from kstore.pipeline.jobs.local_rows import entry_batches, stored_records
from kstore.pipeline.jobs.scans.brokers import Brokers, Partition, Topic
from kstore.pipeline.jobs.scans.scan import Range, Scan, scan, split
from kstore.pipeline.jobs.topics import set_configs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FEW", "ArchiveOptions", "Plan", "archive", "check_alone", "plan", "task_count"]

TASKS_PER_CORE = 3
FEW = 2_000_000
"""The number of offsets that one process reads in about the time that Spark takes to start."""
Sums = dict[tuple[str, int], tuple[int, int, int]]
"""By topic and partition: records, digest, and offsets without a record."""
_SUMMED = ("offset", "endOffset", "records", "digest")


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


def task_count(spark: SparkSession, requested: int) -> int:
    """The number of tasks."""
    return requested or TASKS_PER_CORE * max(int(spark.sparkContext.defaultParallelism), 1)


@dataclass(frozen=True)
class Plan:
    """What a run will archive: the ranges of the topics that the archive does not have yet."""

    topics: tuple[Topic, ...]
    ranges: tuple[Range, ...]
    cluster_id: str

    @property
    def offsets(self) -> int:
        """How many there are, which may be more than records."""
        return sum(part.size for part in self.ranges)


def plan(
    spark: SparkSession | None, options: ArchiveOptions, report: Callable[[str], None]
) -> Plan:
    """Compare the archive with the cluster. Raises JobError if they do not belong together."""
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
    return Plan(tuple(topics), tuple(part for part in parts if part.size), cluster_id)


def archive(
    spark: SparkSession | None,
    options: ArchiveOptions,
    report: Callable[[str], None],
    planned: Plan | None = None,
) -> list[Slice]:
    """Archive the records of the topics that the archive does not have yet.

    Returns the slices of this run; empty if there was nothing new. Without Spark, this process does
    it, in a folder of this machine. Raises JobError, and PipelineError if brokers do not return the
    records.
    """
    planned = planned or plan(spark, options, report)
    if not planned.ranges:
        return []
    run = time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + uuid.uuid4().hex[:8]
    report(f"run {run}: {planned.offsets} offsets of {len(planned.ranges)} partitions")
    reading = Scan(options.settings, read_committed=options.read_committed, hourly=options.hourly)
    configs = set_configs(options.settings, [topic.name for topic in planned.topics])
    try:
        if spark is None:
            sums = _write_here(options.path, reading, planned.ranges, run)
        else:
            _write(spark, options, reading, planned.ranges, run)
            sums = _sums(spark, options.path, run)
        slices = _slices(options, planned, run, sums, configs)
        write_slices(spark, options.path, slices, partial(check_alone, options.path))
    except BaseException:
        if spark is None:
            forget_run(options.path, run)
        raise
    return slices


def check_alone(path: str, ours: Sequence[Slice], there: Sequence[Slice]) -> None:
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
        message = (
            f"topic {part.topic}, partition {part.partition}: the cluster has deleted offsets {at} "
            f"to {part.start - 1}, which are not archived"
        )
        if options.on_loss == "fail":
            raise JobError(f"{message}; --on-loss=skip continues at {part.start}")
        report(f"{message}; continuing at {part.start}")
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


def _write_here(path: str, reading: Scan, ranges: Sequence[Range], run: str) -> Sums:
    """Write the entries in this process. Returns the sums of what can be read back."""
    with RunFiles(path, run) as files:
        for part in ranges:
            for batch in reading.read(part):
                files.add(batch)
    sums: Sums = {}
    for batch in entry_batches(path, [run], ("block", "hole")):
        for row in batch.select(["topic", "partition", *_SUMMED]).to_pylist():
            at = row["topic"], row["partition"]
            records, digest, missing = sums.get(at, (0, 0, 0))
            if row["digest"] is None:
                missing += row["endOffset"] - row["offset"]
            else:
                records, digest = records + row["records"], digest ^ row["digest"]
            sums[at] = records, digest, missing
    written = stored_records(path, run)
    if written != sum(records for records, _, _ in sums.values()):
        raise JobError(
            f"the files of run {run} hold {written} records, not those that were read; the run "
            "does not count. This is a defect of kstore: please report it"
        )
    return sums


def _write(
    spark: SparkSession, options: ArchiveOptions, reading: Scan, ranges: Sequence[Range], run: str
) -> None:
    found = scan(spark, reading, split(ranges, task_count(spark, options.tasks)))
    # A format that other programs can also read; Spark's default is its own.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # In this order, Spark need not sort again for its folders, and each file is sorted by offset.
    found.sortWithinPartitions(*PARTITIONED_BY, "partition", "offset").write.partitionBy(
        *PARTITIONED_BY
    ).option("compression", "zstd").parquet(data_path(options.path, run))


def _sums(spark: SparkSession, path: str, run: str) -> Sums:
    from pyspark.sql.functions import bit_xor, expr
    from pyspark.sql.functions import sum as total

    read = entries(spark, path, [run], "block", "hole").groupBy("topic", "partition")
    return {
        (row.topic, row.partition): (row.records or 0, row.digest or 0, row.missing or 0)
        for row in read.agg(
            total("records").alias("records"),
            bit_xor("digest").alias("digest"),
            expr("sum(endOffset - offset) filter (where entry = 'hole')").alias("missing"),
        ).collect()
    }


def _slices(
    options: ArchiveOptions,
    planned: Plan,
    run: str,
    sums: Sums,
    configs: Mapping[str, Mapping[str, str | None]],
) -> list[Slice]:
    by_name = {topic.name: topic for topic in planned.topics}
    now = int(time.time() * 1000)
    slices = []
    for part in planned.ranges:
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
                cluster_id=planned.cluster_id,
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
            " the run does not count. This is a defect of kstore: please report it"
        )
