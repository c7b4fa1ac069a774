"""The job restore: copies topics of an archive to a kstore cluster, each record at its offset.

It keeps no state: a partition continues at the target's log end offset. Producer ids, sequences,
batches and markers of the archive are not restored: the offsets of markers stay holes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kstore.clients.io.cluster import ClusterClient
from kstore.config.client.configs import client_settings
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.layout import Slice, check_files, entries, read_slices
from kstore.pipeline.jobs.local_rows import OrderedRows
from kstore.pipeline.jobs.offset_writer import (
    OffsetWriter,
    Row,
    pieces,
    require_given_offsets,
    same_record,
)
from kstore.pipeline.jobs.topics import admin_settings, create_topic, topic_partitions
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RestoreOptions", "Restored", "Restorer", "offsets_to_restore", "restore"]

_RESULT = (
    "topic string, partition int, written bigint, alreadyThere bigint, startOffset bigint, "
    "endOffset bigint"
)
_COLUMNS = ("topic", "partition", "offset", "timestampMillis", "key", "value", "headers")


@dataclass(frozen=True)
class RestoreOptions:
    """`topics` matches whole names in the archive; `settings` are a consumer's, for the target."""

    path: str
    settings: Mapping[str, Any]
    topics: re.Pattern[str]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Name in the archive -> name in the target."""
    replication_factor: int = -1
    copy_configs: bool = True
    compression: int = 0


@dataclass(frozen=True)
class Restored:
    """The result for one partition. `already_there` counts offsets that the target had."""

    topic: str
    partition: int
    written: int
    already_there: int
    start_offset: int
    end_offset: int


def restore(
    spark: SparkSession | None, options: RestoreOptions, report: Callable[[str], None]
) -> list[Restored]:
    """Restore all records of these topics that the target does not have.

    Without Spark, this process does it. Raises JobError, and PipelineError if records can't be
    written.
    """
    slices = _slices(spark, options)
    # Before anything is written: records after a gap can't be removed from the target again,
    # because offsets only increase.
    check_files(spark, options.path, slices)
    _check_given_offsets(options.settings)
    by_topic = {name: list(group) for name, group in groupby(slices, key=attrgetter("topic"))}
    for name, group in by_topic.items():
        _make(name, group, options, report)
    restorer = Restorer(options.settings, options.renamed, options.compression)
    if spark is None:
        found = asyncio.run(restorer.run(_rows(_ordered(options.path, slices))))
    else:
        frame = entries(spark, options.path, [s.run for s in slices], "record")
        frame = frame.where(_named(by_topic)).select(*_COLUMNS)
        found = [tuple(row) for row in _write(frame, restorer, slices).collect()]
    # Sorted here: to sort in Spark would run the tasks twice.
    return sorted((Restored(*row) for row in found), key=attrgetter("topic", "partition"))


def offsets_to_restore(options: RestoreOptions) -> int:
    """The number of offsets of these topics in the archive, a folder of this machine. Raises
    JobError.
    """
    return sum(each.end - each.start for each in _slices(None, options))


def _slices(spark: SparkSession | None, options: RestoreOptions) -> list[Slice]:
    there = read_slices(spark, options.path)
    slices = [each for each in there if options.topics.fullmatch(each.topic)]
    if not slices:
        names = ", ".join(sorted({each.topic for each in there})[:10])
        raise JobError(
            f"no topic in the archive {options.path} matches {options.topics.pattern!r}: it holds "
            f"{names or 'nothing'}"
        )
    return slices


def _named(topics: Iterable[str]) -> Any:
    from pyspark.sql.functions import col

    return col("topic").isin(list(topics))


def _write(frame: DataFrame, restorer: Restorer, slices: list[Slice]) -> DataFrame:
    """One task has all records of a partition, in order: offsets only increase."""
    count = len({(each.topic, each.partition) for each in slices})
    ordered = frame.repartition(count, "topic", "partition").sortWithinPartitions(
        "topic", "partition", "offset"
    )
    return ordered.mapInArrow(restorer, _RESULT)


def _ordered(path: str, slices: Iterable[Slice]) -> Iterator[Any]:
    """The records of slices, which are in order, as RecordBatches in the order of topic, partition
    and offset.
    """
    rows = OrderedRows(path)
    for each in slices:
        for batch in rows.read(each.run, each.topic, each.partition):
            topics = pa.repeat(pa.scalar(each.topic), batch.num_rows)
            yield batch.append_column("topic", topics)


def _check_given_offsets(settings: Mapping[str, Any]) -> None:
    async def check() -> None:
        cluster = ClusterClient(client_settings("admin", admin_settings(settings), {}))
        try:
            timeout_ms = cluster.settings["default.api.timeout.ms"]
            await cluster.retrying(partial(require_given_offsets, cluster), timeout_ms)
        finally:
            await cluster.close()

    asyncio.run(check())


def _make(
    name: str, group: list[Slice], options: RestoreOptions, report: Callable[[str], None]
) -> None:
    """Create the topic, if the target does not have it. An existing topic must have at least as
    many partitions.
    """
    target = options.renamed.get(name, name)
    newest = max(group, key=attrgetter("archived_ms"))
    count = max(each.partitions for each in group)
    there = topic_partitions(options.settings, target)
    if there is None:
        configs = json.loads(newest.configs) if options.copy_configs else {}
        create_topic(options.settings, target, count, configs, options.replication_factor)
        report(f"created topic {target} with {count} partitions")
    elif there < count:
        raise JobError(
            f"topic {target} has {there} partitions in the target and {count} in the archive: add "
            "partitions, or restore under another name (--rename)"
        )


@dataclass(frozen=True)
class Restorer:
    """What the executors receive: rows sorted by topic, partition and offset; the result is a row
    for each partition.
    """

    settings: Mapping[str, Any]
    renamed: Mapping[str, str]
    compression: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """A function for Spark's `mapInArrow`."""
        found = asyncio.run(self.run(_rows(batches)))
        if found:
            columns = [list(column) for column in zip(*found, strict=True)]
            types = [pa.string(), pa.int32(), *[pa.int64()] * 4]
            names = [part.split()[0] for part in _RESULT.split(", ")]
            arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    async def run(self, rows: Iterator[tuple[str, int, Row]]) -> list[tuple[Any, ...]]:
        """Write the rows; topic, partition, records written and there, first and next offset."""
        settings = client_settings("admin", admin_settings(self.settings), {})
        cluster = ClusterClient(settings)
        found: list[tuple[Any, ...]] = []
        try:
            for (topic, partition), group in groupby(rows, key=lambda row: row[:2]):
                tp = TopicPartition(self.renamed.get(topic, topic), partition)
                writer = OffsetWriter(cluster, tp, settings["default.api.timeout.ms"])
                await writer.open()
                start = writer.position
                checked = _checked(tp, writer, (row for _, _, row in group))
                for piece in pieces(checked, self.compression):
                    await writer.write(piece)
                done = writer.written, writer.already_there
                found.append((tp.topic, tp.partition, *done, start, writer.position))
        finally:
            await cluster.close()
        return found


def _rows(batches: Iterator[Any]) -> Iterator[tuple[str, int, Row]]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _COLUMNS]
        for topic, partition, offset, timestamp, key, value, headers in zip(*columns, strict=True):
            pairs = [(pair["key"], pair["value"]) for pair in headers or ()]
            yield topic, partition, Row(offset, timestamp, key, value, pairs)


def _checked(tp: TopicPartition, writer: OffsetWriter, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows. The row at the offset of the target's last record must equal it; otherwise the
    target is another topic.
    """
    last = writer.last
    for row in rows:
        if last is not None and row.offset == last.offset and not same_record(row, last):
            raise PipelineError(
                "the target has another record at this offset than the archive",
                topic=tp.topic,
                partition=tp.partition,
                offset=row.offset,
                remedy="Another program has written to it; restore under another name (--rename), "
                "or delete the topic",
            )
        yield row
