"""The two kinds of sides of a verification: a cluster, or an archive. Both report what they cover,
and return block sums, faults, holes and hashes of single records in the same form.

Zones: offsets before, inside and after the range that both sides cover are summed separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from kstore.pipeline.jobs.archive import task_count
from kstore.pipeline.jobs.layout import Slice, check_files, entries, read_slices
from kstore.pipeline.jobs.local_rows import entry_batches
from kstore.pipeline.jobs.scans.brokers import Brokers
from kstore.pipeline.jobs.scans.entries import (
    BLOCK,
    blocks_of,
    content_hashes,
    entry_batch,
    placed_hashes,
    spark_schema,
)
from kstore.pipeline.jobs.scans.scan import Range, Scan, scan, split
from kstore.pipeline.jobs.session import small_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ArchiveSide",
    "ClusterSide",
    "Extent",
    "PartitionKey",
    "Side",
    "block_ranges",
    "by_partition",
]

PartitionKey = tuple[str, int]
ZONES = ("before", "inside", "behind")
_NEEDED = (
    "topic", "partition", "offset", "timestampMillis", "leaderEpoch", "key", "value", "headers",
)  # fmt: skip


class Extent(NamedTuple):
    """Offsets `start` to below `end` that a side covers."""

    start: int
    end: int


class Side(Protocol):
    """A cluster or an archive."""

    def covers(
        self, spark: SparkSession | None, wanted: re.Pattern[str]
    ) -> dict[PartitionKey, Extent]:
        """The partitions of the topics, and what the side covers of each."""

    def lives(self) -> dict[str, tuple[str, str]]:
        """Cluster id and topic id of each topic, empty if unknown."""

    def sums(self, spark: SparkSession, inside: Mapping[PartitionKey, Extent]) -> DataFrame:
        """Entries: blocks (`kind` has their zone), holes and faults."""

    def sums_here(self, inside: Mapping[PartitionKey, Extent]) -> Iterator[Any]:
        """The same as RecordBatches, read by this process."""

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """The records at these offsets, as entries."""

    def records_here(self, ranges: Sequence[Range]) -> Iterator[Any]:
        """The same as RecordBatches, read by this process."""


def zoned(extent: Extent, inside: Extent | None) -> list[tuple[str, Extent]]:
    """An extent, cut at the limits of what both sides cover."""
    if inside is None:
        return [("before", extent)]
    before = Extent(extent.start, min(inside.start, extent.end))
    behind = Extent(max(inside.end, extent.start), extent.end)
    parts = zip(ZONES, (before, inside, behind), strict=True)
    return [(zone, part) for zone, part in parts if part.end > part.start]


@dataclass
class ClusterSide:
    """A cluster, by the settings of a consumer."""

    settings: Mapping[str, Any]
    read_committed: bool = True
    tasks: int = 0
    _extents: dict[PartitionKey, Extent] = field(default_factory=dict)
    _lives: dict[str, tuple[str, str]] = field(default_factory=dict)

    def covers(
        self, spark: SparkSession | None, wanted: re.Pattern[str]
    ) -> dict[PartitionKey, Extent]:
        """See Side."""
        with Brokers(self.settings, read_committed=self.read_committed) as brokers:
            for topic in brokers.topics(wanted):
                self._lives[topic.name] = brokers.cluster_id, topic.topic_id
                for part in topic.partitions:
                    self._extents[topic.name, part.partition] = Extent(part.start, part.end)
        return self._extents

    def lives(self) -> dict[str, tuple[str, str]]:
        """See Side."""
        return self._lives

    def sums(self, spark: SparkSession, inside: Mapping[PartitionKey, Extent]) -> DataFrame:
        """See Side. Offsets before the range are not read: the other side has deleted them."""
        plan, ranges = self._to_sum(inside)
        return scan(spark, plan, split(ranges, task_count(spark, self.tasks)))

    def sums_here(self, inside: Mapping[PartitionKey, Extent]) -> Iterator[Any]:
        """See Side."""
        plan, ranges = self._to_sum(inside)
        return (batch for each in ranges for batch in plan.read(each))

    def _to_sum(self, inside: Mapping[PartitionKey, Extent]) -> tuple[Scan, list[Range]]:
        ranges = [
            Range(*tp, part.start, part.end, zone)
            for tp, extent in self._extents.items()
            for zone, part in zoned(extent, inside.get(tp))
            if zone != "before" and part.end > part.start
        ]
        plan = Scan(
            self.settings,
            frozenset({"block", "hole", "fault"}),
            read_committed=self.read_committed,
            tolerant=True,
        )
        return plan, ranges

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See Side."""
        return scan(spark, self._to_compare(), split(ranges, task_count(spark, self.tasks)))

    def records_here(self, ranges: Sequence[Range]) -> Iterator[Any]:
        """See Side."""
        plan = self._to_compare()
        return (batch for each in ranges for batch in plan.read(each))

    def _to_compare(self) -> Scan:
        return Scan(
            self.settings,
            frozenset({"record"}),
            read_committed=self.read_committed,
            tolerant=True,
        )


@dataclass
class ArchiveSide:
    """An archive's folder. Its slices are known after `covers`."""

    path: str
    slices: list[Slice] = field(default_factory=list)

    def covers(
        self, spark: SparkSession | None, wanted: re.Pattern[str]
    ) -> dict[PartitionKey, Extent]:
        """See Side."""
        self.slices = [s for s in read_slices(spark, self.path) if wanted.fullmatch(s.topic)]
        found: dict[PartitionKey, Extent] = {}
        for each in self.slices:
            tp = each.topic, each.partition
            start, end = found.get(tp, (each.start, each.end))
            found[tp] = Extent(min(start, each.start), max(end, each.end))
        return found

    def check_files(self, spark: SparkSession | None) -> None:
        """Raise PipelineError if the files do not have all records that were archived."""
        check_files(spark, self.path, self.slices)

    def lives(self) -> dict[str, tuple[str, str]]:
        """See Side."""
        return {each.topic: (each.cluster_id, each.topic_id) for each in self.slices}

    def sums(self, spark: SparkSession, inside: Mapping[PartitionKey, Extent]) -> DataFrame:
        """See Side. The blocks are computed from the records; the holes are the stored ones."""
        read = self._read(spark, "record").select(*_NEEDED)
        found = read.mapInArrow(Sums(dict(inside)), spark_schema())
        return found.unionByName(self._read(spark, "hole").drop("run"))

    def sums_here(self, inside: Mapping[PartitionKey, Extent]) -> Iterator[Any]:
        """See Side."""
        yield from Sums(dict(inside))(self._read_here("record"))
        yield from self._read_here("hole")

    def stored(self, spark: SparkSession) -> DataFrame:
        """The blocks as they were archived."""
        return self._read(spark, "block")

    def stored_here(self) -> Iterator[Any]:
        """The same as RecordBatches, read by this process."""
        return self._read_here("block")

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See Side."""
        from pyspark.sql.functions import broadcast, col

        rows = [{"t": r.topic, "p": r.partition, "first": r.start, "until": r.end} for r in ranges]
        wanted = small_frame(spark, rows, "t string, p int, first bigint, until bigint")
        read = self._read(spark, "record").where(col("topic").isin({r.topic for r in ranges}))
        joined = read.join(
            broadcast(wanted),
            (col("topic") == col("t"))
            & (col("partition") == col("p"))
            & col("offset").between(col("first"), col("until") - 1),
            "leftsemi",
        )
        return joined.drop("run")

    def records_here(self, ranges: Sequence[Range]) -> Iterator[Any]:
        """See Side."""
        wanted: dict[PartitionKey, list[Range]] = {}
        for each in ranges:
            wanted.setdefault((each.topic, each.partition), []).append(each)
        spans = {
            tp: (min(each.start for each in listed), max(each.end for each in listed))
            for tp, listed in wanted.items()
        }
        for batch in self._read_here("record", spans):
            for tp, rows in by_partition(batch):
                offsets = rows.column("offset").to_numpy(zero_copy_only=False)
                inside = np.zeros(len(offsets), bool)
                for each in wanted.get(tp, ()):
                    inside |= (offsets >= each.start) & (offsets < each.end)
                if inside.any():
                    yield rows.filter(pa.array(inside))

    def _read_here(
        self, kind: str, offsets: Mapping[PartitionKey, tuple[int, int]] | None = None
    ) -> Iterator[Any]:
        runs, topics = ({getattr(s, name) for s in self.slices} for name in ("run", "topic"))
        return entry_batches(self.path, runs, [kind], topics, offsets)

    def _read(self, spark: SparkSession, *kinds: str) -> DataFrame:
        from pyspark.sql.functions import col

        topics = sorted({each.topic for each in self.slices})
        found = entries(spark, self.path, [each.run for each in self.slices], *kinds)
        return found.where(col("topic").isin(topics))


@dataclass(frozen=True)
class Sums:
    """Converts records of an archive to blocks, in `mapInArrow`; the caller adds up several blocks
    of one number.
    """

    inside: dict[PartitionKey, Extent]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """A function for Spark's `mapInArrow`."""
        for batch in batches:
            for tp, rows in by_partition(batch):
                offsets = rows.column("offset").to_numpy(zero_copy_only=False)
                placed = placed_hashes(content_hashes(rows), offsets)
                epochs = rows.column("leaderEpoch").to_numpy(zero_copy_only=False)
                inside = self.inside.get(tp, Extent(0, 0))
                zone = np.where(offsets < inside.start, 0, np.where(offsets < inside.end, 1, 2))
                for number, name in enumerate(ZONES):
                    at = zone == number
                    if at.any():
                        yield _blocks(tp, name, offsets[at], placed[at], epochs[at])


def by_partition(batch: Any) -> Iterator[tuple[PartitionKey, Any]]:
    """The rows of a batch by topic and partition, each in order."""
    topics = batch.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    keys = (codes << 32) | batch.column("partition").to_numpy(zero_copy_only=False)
    for key in np.unique(keys):
        rows = batch.filter(pa.array(keys == key))
        yield (topics.dictionary[int(key >> 32)].as_py(), int(key & 0xFFFFFFFF)), rows


def _blocks(tp: PartitionKey, zone: str, offsets: Any, placed: Any, epochs: Any) -> Any:
    found = blocks_of(offsets, placed)
    ends = np.cumsum([records for _, records, _ in found])
    begins = np.concatenate(([0], ends[:-1]))
    columns = {
        "partition": pa.array(np.full(len(found), tp[1], np.int32)),
        "offset": np.minimum.reduceat(offsets, begins),
        "endOffset": np.maximum.reduceat(offsets, begins) + 1,
        "leaderEpoch": np.maximum.reduceat(epochs, begins).astype(np.int32),
        "kind": [zone] * len(found),
        "records": [records for _, records, _ in found],
        "digest": [digest for _, _, digest in found],
    }
    return entry_batch("block", tp[0], columns)


def block_ranges(tp: PartitionKey, numbers: Iterable[int], inside: Extent) -> list[Range]:
    """The offsets of these blocks that both sides cover."""
    return [
        Range(*tp, max(n * BLOCK, inside.start), min((n + 1) * BLOCK, inside.end)) for n in numbers
    ]
