"""The job verify: whether two clusters, or a cluster and an archive, hold the same records at the
same offsets. `compare.BAD` lists what it looks for.

Both sides are read once and summed to blocks of 10,000 offsets where they are read. Only the
records of blocks whose sums differ are compared one by one. Differences that are not problems are
also reported: deleted records, and holes. key_order.py checks the order per key, report.py writes
the report.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.entries import BLOCK, content_hashes, placed_hashes
from kstore.pipeline.jobs.verification.compare import (
    FINDING_DDL,
    Block,
    Finding,
    PartitionKey,
    Summary,
    block_findings,
    epoch_findings,
    record_findings,
)
from kstore.pipeline.jobs.verification.local_verify import by_block, summed
from kstore.pipeline.jobs.verification.sides import (
    ArchiveSide,
    Extent,
    Side,
    block_ranges,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Verification", "VerifyOptions", "verify"]

Sums = dict[PartitionKey, dict[int, Block]]
BLOCKS_AT_ONCE = 50
_HASH_DDL = "topic string, partition int, block bigint, offset bigint, digest bigint"


@dataclass(frozen=True)
class VerifyOptions:
    """`right` None: check only `left` (an archive's own sums, faults, epochs)."""

    topics: re.Pattern[str]
    left: Side
    right: Side | None = None
    behind_allowed: bool = False
    """A right side that ends earlier is not a failure; for example, it is still being copied."""


@dataclass
class Verification:
    """The result. `findings` are all findings; `blocks` has each block that was compared."""

    summaries: list[Summary] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    blocks: list[tuple[str, int, int, int, int, bool]] = field(default_factory=list)
    """Topic, partition, block number, records left and right, whether they are equal."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether there are no problems."""
        return not self.findings


@dataclass
class _Read:
    """All sums of one side."""

    blocks: Sums = field(default_factory=lambda: defaultdict(dict))
    behind: Sums = field(default_factory=lambda: defaultdict(dict))
    whole: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)
    """Records and digest of each block in all zones."""
    holes: dict[PartitionKey, int] = field(default_factory=lambda: defaultdict(int))
    faults: list[tuple[PartitionKey, int, int, str]] = field(default_factory=list)


def verify(
    spark: SparkSession | None, options: VerifyOptions, report: Callable[[str], None]
) -> Verification:
    """Compare; in this process if `spark` is None.

    Raises JobError if there is nothing to compare, PipelineError from a task.
    """
    found = Verification()
    # The right first: then a copy in progress never seems to be ahead.
    copy = None if options.right is None else options.right.covers(spark, options.topics)
    left = options.left.covers(spark, options.topics)
    right = left if copy is None else copy
    if not left and not right:
        raise JobError(f"no topic on either side matches {options.topics.pattern!r}")
    recreated = _recreated(options, found)
    inside = {
        tp: Extent(start, max(min(left[tp].end, right[tp].end), start))
        for tp in left.keys() & right.keys()
        if tp[0] not in recreated
        for start in [max(left[tp].start, right[tp].start)]
    }
    for tp in sorted(left.keys() ^ right.keys()):
        side = "right" if tp in left else "left"
        extent = left.get(tp) or right[tp]
        size = extent.end - extent.start
        found.findings.append(Finding("absent", *tp, extent.start, extent.end, size, side))
    report(f"{len(inside)} partitions, {sum(e.end - e.start for e in inside.values())} offsets")
    ours = _read(_sums(spark, options.left, inside))
    report("the left is read")
    theirs = ours if options.right is None else _read(_sums(spark, options.right, inside))
    report("the right is read")
    unequal = _compare(options, found, (left, right, inside), (ours, theirs))
    if unequal and options.right is not None:
        report(f"{sum(map(len, unequal.values()))} blocks differ: comparing their records")
        found.findings += _records(spark, options, unequal, inside)
    for name, one, read in (("left", options.left, ours), ("right", options.right, theirs)):
        if isinstance(one, ArchiveSide):
            found.findings += _archive_findings(_stored(spark, one), one, name, read)
    _finish(found)
    return found


def _recreated(options: VerifyOptions, found: Verification) -> set[str]:
    """Topics of one cluster with two ids: the archive is of an earlier topic of that name."""
    if options.right is None:
        return set()
    ours, theirs = options.left.lives(), options.right.lives()
    names = set()
    for topic in sorted(ours.keys() & theirs.keys()):
        (cluster, one), (other_cluster, other) = ours[topic], theirs[topic]
        if cluster and cluster == other_cluster and one and other and one != other:
            names.add(topic)
            message = f"topic id {one} on the left, {other} on the right: nothing was compared"
            found.findings.append(Finding("recreated", topic, -1, -1, -1, 0, "both", message))
    return names


def _sums(
    spark: SparkSession | None, side: Side, inside: dict[PartitionKey, Extent]
) -> Sequence[Any]:
    """One pass over a side: a row per block, fault and kind of hole, with the fields of a Sum."""
    if spark is not None:
        return _collected(side.sums(spark, inside))
    return summed(side.sums_here(inside))


def _collected(frame: DataFrame) -> Sequence[Any]:
    from pyspark.sql.functions import bit_xor, col, expr, lit, when
    from pyspark.sql.functions import max as greatest
    from pyspark.sql.functions import min as least
    from pyspark.sql.functions import sum as total

    is_block = col("entry") == "block"
    number = when(is_block, expr(f"offset div {BLOCK}"))
    # A hole needs no position; a fault keeps its own.
    at = when(col("entry") == "fault", col("offset")).otherwise(lit(None))
    rows: Sequence[Any] = (
        frame.select("*", number.alias("block"), at.alias("at"))
        .groupBy("entry", "topic", "partition", "kind", "block", "at")
        .agg(
            least("offset").alias("first"),
            greatest("endOffset").alias("until"),
            total("records").alias("records"),
            bit_xor("digest").alias("digest"),
            greatest("leaderEpoch").alias("epoch"),
            total(col("endOffset") - col("offset")).alias("offsets"),
        )
        .collect()
    )
    return rows


def _read(rows: Sequence[Any]) -> _Read:
    found = _Read()
    for row in rows:
        at = row.topic, row.partition
        if row.entry == "block":
            block = Block(row.first, row.until, row.records, row.digest, row.epoch)
            if row.kind != "before":
                sums = found.behind if row.kind == "behind" else found.blocks
                sums[at][row.block] = block
            records, digest = found.whole.get((*at, row.block), (0, 0))
            found.whole[*at, row.block] = records + row.records, digest ^ row.digest
        elif row.entry == "hole":
            found.holes[at] += row.offsets
        else:
            found.faults.append((at, row.first, row.until, row.kind))
    return found


def _compare(
    options: VerifyOptions,
    found: Verification,
    covers: tuple[
        dict[PartitionKey, Extent], dict[PartitionKey, Extent], dict[PartitionKey, Extent]
    ],
    reads: tuple[_Read, _Read],
) -> dict[PartitionKey, list[int]]:
    """Summaries, and all findings except those of single records; the blocks whose sums differ."""
    left, right, inside = covers
    ours, theirs = reads
    unequal: dict[PartitionKey, list[int]] = {}
    for tp in sorted(left.keys() | right.keys()):
        summary = _summary(tp, covers, reads)
        found.summaries.append(summary)
        if tp not in inside:
            continue
        one, other = ours.blocks[tp], theirs.blocks[tp]
        lacking, differ = block_findings(tp, one, other)
        found.findings += lacking
        if differ:
            unequal[tp] = differ
        summary.blocks = len(one.keys() | other.keys())
        summary.blocks_equal = summary.blocks - len(differ) - len(lacking)
        bad = {*differ} | {finding.start // BLOCK for finding in lacking}
        for number in sorted(one.keys() | other.keys()):
            counts = [side[number].records if number in side else 0 for side in (one, other)]
            found.blocks.append((*tp, number, counts[0], counts[1], number not in bad))
        found.findings += epoch_findings(tp, "left", one)
        if options.right is not None:
            found.findings += epoch_findings(tp, "right", other)
            found.findings += _same_epochs(options, tp, one, other)
        _tails(options, found, tp, reads)
        if left[tp].start != right[tp].start:
            side = "right" if right[tp].start > left[tp].start else "left"
            found.notes.append(
                f"{tp[0]}-{tp[1]}: the {side} begins at "
                f"{max(left[tp].start, right[tp].start)}, the other at "
                f"{min(left[tp].start, right[tp].start)}: earlier offsets are not compared"
            )
    sides = (("left", ours), ("right", theirs)) if options.right is not None else (("left", ours),)
    for side, read in sides:
        for tp, start, end, kind in read.faults:
            found.findings.append(Finding(kind, *tp, start, end, end - start, side))
    return unequal


def _summary(tp: PartitionKey, covers: Any, reads: tuple[_Read, _Read]) -> Summary:
    left, right, inside = (cover.get(tp, Extent(-1, -1)) for cover in covers)
    summary = Summary(*tp, *left, *right, *inside)
    sides = []
    for read in reads:
        blocks = read.blocks[tp].values()
        digest = 0
        for block in blocks:
            digest ^= block.digest
        records = sum(block.records for block in blocks)
        epoch = max((block.epoch for block in blocks), default=-1)
        sides.append((records, digest, read.holes[tp], epoch))
    summary.left_records, summary.left_digest, summary.left_holes, summary.left_epoch = sides[0]
    summary.right_records, summary.right_digest, summary.right_holes, summary.right_epoch = sides[1]
    return summary


def _same_epochs(
    options: VerifyOptions, tp: PartitionKey, one: dict[int, Block], other: dict[int, Block]
) -> Iterator[Finding]:
    """In one cluster an offset's leader epoch never changes."""
    assert options.right is not None
    ours, theirs = options.left.lives(), options.right.lives()
    if not ours.get(tp[0], ("",))[0] or ours[tp[0]] != theirs.get(tp[0]):
        return
    for number in sorted(one.keys() & other.keys()):
        a, b = one[number], other[number]
        if (a.records, a.digest) == (b.records, b.digest) and a.epoch != b.epoch:
            message = f"epoch {a.epoch} on the left, {b.epoch} on the right"
            yield Finding("epoch", *tp, a.first, a.end, a.records, "both", message)


def _tails(
    options: VerifyOptions, found: Verification, tp: PartitionKey, reads: tuple[_Read, _Read]
) -> None:
    """The records of one side after the other's end."""
    for kind, side, read in (("behind", "right", reads[0]), ("extra", "left", reads[1])):
        blocks = read.behind[tp].values()
        if not blocks:
            continue
        first, end = min(b.first for b in blocks), max(b.end for b in blocks)
        records = sum(b.records for b in blocks)
        if kind == "behind" and options.behind_allowed:
            found.notes.append(f"{tp[0]}-{tp[1]}: {records} records are not copied yet")
            continue
        message = f"the {side} ends before"
        found.findings.append(Finding(kind, *tp, first, end, records, side, message))


# ---- single records ----


def _records(
    spark: SparkSession | None,
    options: VerifyOptions,
    unequal: dict[PartitionKey, list[int]],
    inside: dict[PartitionKey, Extent],
) -> list[Finding]:
    assert options.right is not None
    ranges = [
        each for tp, numbers in unequal.items() for each in block_ranges(tp, numbers, inside[tp])
    ]
    if spark is None:
        sides = options.left, options.right
        found: list[Finding] = []
        for at in range(0, len(ranges), BLOCKS_AT_ONCE):  # their hashes are in memory
            left, right = (_hashed(s.records_here(ranges[at : at + BLOCKS_AT_ONCE])) for s in sides)
            found += [Finding(**row) for row in by_block((left, right), _differences)]
        return found
    groups = [
        side.records(spark, ranges)
        .mapInArrow(_hashed, _HASH_DDL)
        .groupBy("topic", "partition", "block")
        for side in (options.left, options.right)
    ]
    rows = groups[0].cogroup(groups[1]).applyInArrow(_differences, FINDING_DDL).collect()
    return [Finding(**row.asDict()) for row in rows]


def _hashed(batches: Iterator[Any]) -> Iterator[Any]:
    """Converts records to their hashes."""
    for rows in batches:
        offsets = rows.column("offset").to_numpy(zero_copy_only=False)
        placed = placed_hashes(content_hashes(rows), offsets)
        arrays = [
            rows.column("topic"),
            rows.column("partition"),
            pa.array(offsets // BLOCK),
            rows.column("offset"),
            pa.array(placed.view(np.int64)),
        ]
        names = ["topic", "partition", "block", "offset", "digest"]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _differences(left: Any, right: Any) -> Any:
    """One block of both sides, for `applyInArrow`."""
    some = left if left.num_rows else right
    tp = some["topic"][0].as_py(), some["partition"][0].as_py()
    sides = [(side["offset"].to_numpy(), side["digest"].to_numpy()) for side in (left, right)]
    found = record_findings(tp, sides[0], sides[1])
    fields = [part.strip().split() for part in FINDING_DDL.replace("`", "").split(",")]
    types = {"string": pa.string(), "bigint": pa.int64()}
    return pa.table(
        {
            name: pa.array([getattr(finding, name) for finding in found], types[kind])
            for name, kind in fields
        }
    )


# ---- archives ----


def _stored(spark: SparkSession | None, side: ArchiveSide) -> Sequence[Any]:
    """The sums of an archive's blocks as they were archived, with a Sum's fields."""
    if spark is None:
        return summed(side.stored_here())
    from pyspark.sql.functions import bit_xor, expr
    from pyspark.sql.functions import max as greatest
    from pyspark.sql.functions import min as least
    from pyspark.sql.functions import sum as total

    blocks = side.stored(spark).groupBy("topic", "partition", expr(f"offset div {BLOCK} AS block"))
    rows: Sequence[Any] = blocks.agg(
        total("records").alias("records"),
        bit_xor("digest").alias("digest"),
        least("offset").alias("first"),
        greatest("endOffset").alias("until"),
    ).collect()
    return rows


def _archive_findings(
    stored: Sequence[Any], side: ArchiveSide, name: str, read: _Read
) -> Iterator[Finding]:
    """Blocks that are not as they were archived, and offsets between runs that never were."""
    seen = set()
    for row in stored:
        at = row.topic, row.partition, row.block
        seen.add(at)
        records, digest = read.whole.get(at, (0, 0))
        if (records, digest) != (row.records, row.digest):
            message = f"{row.records} records were archived, {records} exist"
            if records == row.records:
                message = f"all {records} records exist, but they have changed"
            span = row.first, row.until
            yield Finding(
                "damaged", *at[:2], *span, max(abs(row.records - records), 1), name, message
            )
    for topic, partition, block in sorted(read.whole.keys() - seen):
        records, _ = read.whole[topic, partition, block]
        span = block * BLOCK, (block + 1) * BLOCK
        yield Finding("damaged", topic, partition, *span, records, name, "they were not archived")
    ends: dict[PartitionKey, int] = {}
    for each in side.slices:
        tp = each.topic, each.partition
        end = ends.get(tp, each.start)
        if each.start > end:
            yield Finding("gap", *tp, end, each.start, each.start - end, name)
        if each.start < end:
            twice = min(end, each.end)
            yield Finding("doubled", *tp, each.start, twice, twice - each.start, name,
                          "two runs have archived them")  # fmt: skip
        ends[tp] = max(end, each.end)


def _finish(found: Verification) -> None:
    found.findings.sort(key=lambda f: (f.topic, f.partition, f.start, f.kind))
    bad: dict[PartitionKey, int] = defaultdict(int)
    for finding in found.findings:
        bad[finding.topic, finding.partition] += max(finding.records, 1)
    for summary in found.summaries:
        summary.findings = bad[summary.topic, summary.partition]
