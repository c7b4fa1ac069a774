"""The job stats: keys, sizes, times and skew of the topics of a cluster or an archive, and the lag
of their groups. Executors sum up the records; stats_report.py writes the report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstore.clients.admin import AdminClient
from kstore.pipeline.jobs.archive import task_count
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.entries import Chunk, key_hashes
from kstore.pipeline.jobs.scans.scan import Range, Scan, split
from kstore.pipeline.jobs.topics import admin_settings
from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide, by_partition
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "SUMMED",
    "KeyStats",
    "Lag",
    "PartitionStats",
    "Stats",
    "StatsScan",
    "bucket_size",
    "gather",
    "group_lags",
    "take_sums",
]

HOUR_MS = 3_600_000
KEY_BYTES = 64
"""The length of a key that is shown."""
STEPS = 4
"""Size buckets per doubling."""
SUMMED = ("records", "keyBytes", "valueBytes", "nullKeys", "tombstones", "withHeaders")
_DDL = (
    "entry string, topic string, partition int, number bigint, key binary, records bigint, "
    "keyBytes bigint, valueBytes bigint, nullKeys bigint, tombstones bigint, withHeaders bigint, "
    "largest bigint, firstTime bigint, lastTime bigint"
)
_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
_FIELDS = [part.split() for part in _DDL.split(", ")]
_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in _FIELDS])


@dataclass
class PartitionStats:
    """One partition's records; times in ms, -1 for none."""

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    null_keys: int = 0
    tombstones: int = 0
    with_headers: int = 0
    largest: int = 0
    first_time: int = -1
    last_time: int = -1


@dataclass(frozen=True)
class KeyStats:
    """One of a topic's most frequent keys; `key` is the beginning of it."""

    topic: str
    key: bytes | None
    records: int
    value_bytes: int


@dataclass(frozen=True)
class Lag:
    """How far a group is behind a partition's end; -1 if it has committed nothing."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        """The number of offsets left to read."""
        return max(self.end - self.committed, 0)


@dataclass
class Stats:
    """The result. `sizes` and `times` count records by topic and bucket (see `bucket_size`) or hour
    since 1970.
    """

    partitions: list[PartitionStats] = field(default_factory=list)
    distinct_keys: dict[str, int] = field(default_factory=dict)
    keys: list[KeyStats] = field(default_factory=list)
    sizes: dict[str, dict[int, int]] = field(default_factory=dict)
    times: dict[str, dict[int, int]] = field(default_factory=dict)
    lags: list[Lag] = field(default_factory=list)

    def of(self, topic: str) -> list[PartitionStats]:
        """A topic's partitions."""
        return [part for part in self.partitions if part.topic == topic]

    def skew(self, topic: str) -> float:
        """The largest partition's records over the mean; 1.0: all are equal."""
        counts = [part.records for part in self.of(topic)]
        return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0

    def size_at(self, topic: str, share: float) -> int:
        """The size of key and value below which this share of the records is, to a fifth; at most
        the size of the largest.
        """
        sizes = self.sizes.get(topic, {})
        wanted = share * sum(sizes.values())
        seen = 0
        for bucket in sorted(sizes):
            seen += sizes[bucket]
            if seen >= wanted:
                largest = max(part.largest for part in self.of(topic))
                return min(bucket_size(bucket + 1), largest)
        return 0


def bucket_size(bucket: int) -> int:
    """The smallest size in bytes of a bucket."""
    return round(float(2 ** (bucket / STEPS))) - 1


def gather(
    spark: SparkSession,
    side: ClusterSide | ArchiveSide,
    wanted: re.Pattern[str],
    report: Callable[[str], None],
    *,
    top: int = 20,
    tasks: int = 0,
) -> Stats:
    """Read all records of the topics once and sum them up. Raises JobError, PipelineError."""
    extents = side.covers(spark, wanted)
    if not extents:
        raise JobError(f"no topic matches {wanted.pattern!r}")
    ranges = [Range(*place, extent.start, extent.end) for place, extent in extents.items()]
    report(f"{len(ranges)} partitions, {sum(each.size for each in ranges)} offsets")
    found = Stats()
    parts = {place: PartitionStats(*place, *extent) for place, extent in extents.items()}
    found.partitions = [parts[place] for place in sorted(parts)]
    if isinstance(side, ClusterSide):
        pieces = split(ranges, task_count(spark, tasks))
        plan = StatsScan(side.settings, read_committed=side.read_committed, ranges=tuple(pieces))
        frame = spark.range(0, len(pieces), 1, max(len(pieces), 1)).mapInArrow(plan, _DDL)
    else:
        side.check_files(spark)
        frame = side.records(spark, ranges).mapInArrow(Fold(), _DDL)
    frame = frame.persist()
    try:
        _sums(frame, found, parts)
        report("the records are read")
        _keys(frame, found, top)
    finally:
        frame.unpersist()
    if isinstance(side, ClusterSide):
        found.lags = group_lags(side.settings, parts)
    return found


def _sums(frame: DataFrame, found: Stats, parts: dict[tuple[str, int], PartitionStats]) -> None:
    from pyspark.sql.functions import col
    from pyspark.sql.functions import max as greatest
    from pyspark.sql.functions import min as least
    from pyspark.sql.functions import sum as total

    rows = (
        frame.where(col("entry") != "key")
        .groupBy("entry", "topic", "partition", "number")
        .agg(
            *(total(name).alias(name) for name in SUMMED),
            greatest("largest").alias("largest"),
            least("firstTime").alias("firstTime"),
            greatest("lastTime").alias("lastTime"),
        )
        .collect()
    )
    take_sums([row.asDict() for row in rows], found, parts)


def take_sums(
    rows: Iterable[Mapping[str, Any]], found: Stats, parts: dict[tuple[str, int], PartitionStats]
) -> None:
    """Add the sums of partitions, sizes and times to the result."""
    for row in rows:
        if row["entry"] == "part":
            part = parts[row["topic"], row["partition"]]
            part.records, part.key_bytes = row["records"], row["keyBytes"]
            part.value_bytes, part.null_keys = row["valueBytes"], row["nullKeys"]
            part.tombstones, part.with_headers = row["tombstones"], row["withHeaders"]
            part.largest = row["largest"]
            if row["firstTime"] is not None:
                part.first_time, part.last_time = row["firstTime"], row["lastTime"]
        else:
            counts = found.sizes if row["entry"] == "size" else found.times
            counts.setdefault(row["topic"], {})[row["number"]] = row["records"]


def _keys(frame: DataFrame, found: Stats, top: int) -> None:
    from pyspark.sql import Window
    from pyspark.sql.functions import any_value, col, count, row_number
    from pyspark.sql.functions import sum as total

    keys = (
        frame.where(col("entry") == "key")
        .groupBy("topic", "number")
        .agg(
            any_value("key").alias("key"),
            total("records").alias("records"),
            total("valueBytes").alias("valueBytes"),
        )
    )
    of_topic = Window.partitionBy("topic")
    ranked = keys.select(
        "*",
        row_number().over(of_topic.orderBy(col("records").desc(), "number")).alias("rank"),
        count("*").over(of_topic).alias("distinct"),
    )
    for row in ranked.where(col("rank") <= max(top, 1)).orderBy("topic", "rank").collect():
        found.distinct_keys[row.topic] = row.distinct
        if row["rank"] <= top:
            key = None if row.key is None else bytes(row.key)
            found.keys.append(KeyStats(row.topic, key, row.records, row.valueBytes))


def group_lags(
    settings: Mapping[str, Any], parts: dict[tuple[str, int], PartitionStats]
) -> list[Lag]:
    """The lag of every group that has committed an offset of these partitions."""
    found = []
    with AdminClient(admin_settings(settings)) as admin:
        for listed in admin.list_groups():
            if listed.group_type == "share":
                continue
            committed = admin.list_group_offsets(listed.group_id)
            for tp, at in committed.items():
                part = parts.get((tp.topic, tp.partition))
                if part is not None:
                    row = Lag(listed.group_id, tp.topic, tp.partition, at.offset, part.end)
                    found.append(row)
    return sorted(found, key=lambda lag: (lag.group, TopicPartition(lag.topic, lag.partition)))


# ---- on executors ----


@dataclass(frozen=True)
class StatsScan(Scan):
    """A scan that returns sums instead of entries."""

    def _entries(self, part: Range, start: int, chunk: Chunk) -> Iterator[Any]:
        if chunk.rows.num_rows:
            yield fold(part.topic, part.partition, chunk.rows)


@dataclass(frozen=True)
class Fold:
    """Converts records of an archive to sums, in `mapInArrow`."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """See the class."""
        for batch in batches:
            for (topic, partition), rows in by_partition(batch):
                yield fold(topic, partition, rows)


def fold(topic: str, partition: int, rows: Any) -> Any:
    """The sums of some records of one partition, in _SCHEMA."""
    keys = _lengths(rows.column("key"))
    values = _lengths(rows.column("value"))
    times = rows.column("timestampMillis").to_numpy(zero_copy_only=False)
    timed = times[times >= 0]
    count = rows.num_rows
    part = {
        "records": count,
        "keyBytes": int(keys.sum()),
        "valueBytes": int(values.sum()),
        "nullKeys": rows.column("key").null_count,
        "tombstones": rows.column("value").null_count,
        "withHeaders": int((_header_counts(rows.column("headers")) > 0).sum()),
        "largest": int((keys + values).max(initial=0)),
        "firstTime": int(timed.min()) if len(timed) else None,
        "lastTime": int(timed.max()) if len(timed) else None,
    }
    buckets = np.floor(np.log2(keys + values + 1) * STEPS).astype(np.int64)
    found = [
        _batch("part", topic, 1, {"partition": [partition]} | {k: [v] for k, v in part.items()}),
        _counted("size", topic, buckets),
        _counted("time", topic, timed // HOUR_MS),
        _by_key(topic, rows, values),
    ]
    return pa.Table.from_batches(found).combine_chunks().to_batches()[0]


def _lengths(column: Any) -> Any:
    return pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _header_counts(column: Any) -> Any:
    return column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)


def _counted(entry: str, topic: str, numbers: Any) -> Any:
    unique, counts = np.unique(numbers, return_counts=True)
    return _batch(entry, topic, len(unique), {"number": unique, "records": counts})


def _by_key(topic: str, rows: Any, sizes: Any) -> Any:
    hashes = key_hashes(rows).view(np.int64)
    unique, first, at, counts = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    shown = pc.binary_slice(rows.column("key").take(pa.array(first)), 0, KEY_BYTES)
    of_key = np.bincount(at, weights=sizes, minlength=len(unique)).astype(np.int64)
    columns = {"number": unique, "key": shown, "records": counts, "valueBytes": of_key}
    return _batch("key", topic, len(unique), columns)


def _batch(entry: str, topic: str, count: int, columns: Mapping[str, Any]) -> Any:
    given = {"entry": [entry] * count, "topic": [topic] * count} | dict(columns)
    arrays = [
        pa.array(given[f.name], f.type) if f.name in given else pa.nulls(count, f.type)
        for f in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
