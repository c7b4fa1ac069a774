"""Order per key, on Spark, by the rules of `kstore verify-order` (OrderChecker).

`numbered` checks the numbers that a writer gave each key's records. `same_order` needs no numbers:
it numbers the records of each key in the order of the left, finds them on the right by content, at
any offset, and checks the numbers there. So it can check copies of other tools.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from kstore.clients.core.order_check import Finding as OrderFinding
from kstore.clients.core.order_check import OrderChecker, OrderReport
from kstore.clients.core.order_fields import field_reader, number_of
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.entries import content_hashes, key_hashes
from kstore.pipeline.jobs.scans.scan import Range
from kstore.pipeline.jobs.verification.compare import FINDING_DDL, Finding, Summary
from kstore.pipeline.jobs.verification.verify import Verification
from kstore.types import Header, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kstore.pipeline.jobs.verification.sides import Side

__all__ = ["numbered", "same_order"]

KEPT = 20
"""The maximum number of findings of each kind that one task returns; all are counted."""
_NUMBERED = "topic string, partition int, offset bigint, key binary, number bigint"
_SIDED = (
    "topic string, keyHash bigint, side int, partition int, offset bigint, content bigint, "
    "key binary"
)
_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}


def _records(spark: SparkSession, side: Side, wanted: re.Pattern[str]) -> DataFrame:
    extents = side.covers(spark, wanted)
    if not extents:
        raise JobError(f"no topic matches {wanted.pattern!r}")
    return side.records(spark, [Range(*tp, *extent) for tp, extent in extents.items()])


def _table(ddl: str, columns: Iterable[Any]) -> Any:
    fields = [part.split() for part in ddl.replace("`", "").split(", ")]
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, _TYPES[kind])
        for column, (_, kind) in zip(columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])


def _as_findings(rows: list[Finding]) -> Any:
    names = [part.split()[0].strip("`") for part in FINDING_DDL.split(", ")]
    return _table(FINDING_DDL, ([asdict(row)[name] for row in rows] for name in names))


# ---- by the numbers of the records ----


def numbered(
    spark: SparkSession,
    wanted: re.Pattern[str],
    side: Side,
    name: str,
    key: str,
    number: str,
    report: Callable[[str], None],
) -> list[Finding]:
    """Check that each key's numbers ascend in each partition, without duplicates or gaps.

    `key` and `number` are places as in `field_reader`. Raises JobError for other places.
    """
    try:
        reads = ReadNumbers(key, number)
        reads.readers()
    except ValueError as error:
        raise JobError(str(error)) from None
    rows = _records(spark, side, wanted).mapInArrow(reads, _NUMBERED)
    ordered = rows.repartition("topic", "key").sortWithinPartitions("topic", "partition", "offset")
    found = ordered.mapInArrow(CheckNumbers(name), FINDING_DDL).collect()
    report(f"the numbers of the {name}'s keys are read")
    return [Finding(**row.asDict()) for row in found]


class _Fields(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[Header]


@dataclass(frozen=True)
class ReadNumbers:
    """Converts records to their keys and numbers, in `mapInArrow`; records that lack one are
    skipped.
    """

    key: str
    number: str

    def readers(self) -> tuple[Callable[[Any], bytes | None], Callable[[Any], bytes | None]]:
        """The functions that read key and number."""
        return field_reader(self.key), field_reader(self.number)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """See the class."""
        read_key, read_number = self.readers()
        names = ("topic", "partition", "offset", "key", "value", "headers")
        for batch in batches:
            found: list[tuple[Any, ...]] = []
            columns = (batch.column(name).to_pylist() for name in names)
            for topic, partition, offset, key, value, headers in zip(*columns, strict=True):
                pairs = [Header(pair["key"], pair["value"]) for pair in headers or ()]
                fields = _Fields(key, value, pairs)
                name, number = read_key(fields), number_of(read_number(fields))
                if name is not None and number is not None:
                    found.append((topic, partition, offset, name, number))
            if found:
                yield _table(_NUMBERED, (list(column) for column in zip(*found, strict=True)))


@dataclass(frozen=True)
class CheckNumbers:
    """Converts numbers in the order of topic, partition and offset to findings, in `mapInArrow`."""

    side: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """See the class."""
        checkers: dict[str, OrderChecker] = {}
        for batch in batches:
            columns = (batch.column(n).to_pylist() for n in range(batch.num_columns))
            for topic, partition, offset, key, number in zip(*columns, strict=True):
                checker = checkers.get(topic)
                if checker is None:
                    checker = checkers[topic] = OrderChecker(by_partition=True, keep=KEPT)
                checker.see(bytes(key), number, TopicPartition(topic, partition), offset)
        found = [
            finding
            for topic, checker in checkers.items()
            for finding in order_findings(topic, checker.report(), self.side)
        ]
        if found:
            yield _as_findings(found)


def order_findings(topic: str, report: OrderReport, side: str) -> Iterator[Finding]:
    """The findings of an OrderChecker; the last one's detail has the number of those that were only
    counted.
    """
    for each in report.findings:
        partition = -1 if each.tp is None else each.tp.partition
        count = each.until - each.number + 1
        span = (-1, -1) if each.tp is None else (each.offset, each.offset + 1)
        yield Finding("key order", topic, partition, *span, count, side, str(each))
    counted = Counts.of(report.findings)
    more = Counts(
        report.out_of_order - counted.out_of_order,
        report.duplicates - counted.duplicates,
        report.missing - counted.missing,
    )
    if any(more):
        message = (
            f"and {more.out_of_order} more out of order, {more.duplicates} more duplicates, "
            f"{more.missing} more missing"
        )
        yield Finding("key order", topic, -1, -1, -1, sum(more), side, message)


class Counts(NamedTuple):
    """Records by kind of finding."""

    out_of_order: int
    duplicates: int
    missing: int

    @classmethod
    def of(cls, findings: Iterable[OrderFinding]) -> Counts:
        """The number of records in these findings."""
        sums = {"out_of_order": 0, "duplicate": 0, "gap": 0}
        for each in findings:
            sums[each.kind] += each.until - each.number + 1
        return cls(sums["out_of_order"], sums["duplicate"], sums["gap"])


# ---- by content ----


def same_order(
    spark: SparkSession,
    wanted: re.Pattern[str],
    left: Side,
    right: Side,
    report: Callable[[str], None],
) -> Verification:
    """Check that each key has the same records in the same order on both sides, at any offsets.
    Records without a key count as one key of their partition.
    """
    sides = [
        _records(spark, side, wanted).mapInArrow(SidedRows(number), _SIDED)
        for number, side in enumerate((left, right))
    ]
    rows = sides[0].unionByName(sides[1])
    ordered = rows.repartition("topic", "keyHash").sortWithinPartitions(
        "topic", "keyHash", "side", "partition", "offset"
    )
    found = Verification()
    ddl = FINDING_DDL + ", `left` bigint, `right` bigint"
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in ordered.mapInArrow(CompareKeys(), ddl).collect():
        fields = row.asDict()
        sums = fields.pop("left"), fields.pop("right")
        if fields["kind"] == "sum":
            counts[fields["topic"]][0] += sums[0]
            counts[fields["topic"]][1] += sums[1]
        else:
            found.findings.append(Finding(**fields))
    report("both sides are read")
    for topic, (ours, theirs) in sorted(counts.items()):
        summary = Summary(topic, -1, left_records=ours, right_records=theirs)
        summary.findings = sum(f.records for f in found.findings if f.topic == topic)
        found.summaries.append(summary)
    found.findings.sort(key=lambda f: (f.topic, f.partition, f.start))
    return found


@dataclass(frozen=True)
class SidedRows:
    """Converts records to their key and a hash of their content, in `mapInArrow`."""

    side: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """See the class."""
        for rows in batches:
            partitions = rows.column("partition").to_numpy(zero_copy_only=False)
            keys = key_hashes(rows)
            keyless = rows.column("key").is_null().to_numpy(zero_copy_only=False)
            keys = np.where(keyless, keys + partitions.astype(np.uint64), keys)
            yield _table(
                _SIDED,
                [
                    rows.column("topic"),
                    pa.array(keys.view(np.int64)),
                    pa.array(np.full(rows.num_rows, self.side, np.int32)),
                    rows.column("partition"),
                    rows.column("offset"),
                    pa.array(content_hashes(rows).view(np.int64)),
                    rows.column("key"),
                ],
            )


@dataclass(frozen=True)
class CompareKeys:
    """Converts rows of both sides, by topic, key, side, partition and offset, to findings."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """See the class."""
        checkers: dict[str, OrderChecker] = {}
        found: list[Finding] = []
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for (topic, _), group in groupby(_each(batches), key=itemgetter(0, 1)):
            sides: tuple[list[Any], list[Any]] = ([], [])
            for row in group:
                sides[row[2]].append(row)
            counts[topic][0] += len(sides[0])
            counts[topic][1] += len(sides[1])
            if [row[5] for row in sides[0]] == [row[5] for row in sides[1]]:
                continue
            checker = checkers.setdefault(topic, OrderChecker(by_partition=True, keep=KEPT))
            found += match_key(topic, sides[0], sides[1], checker)
        for topic, checker in checkers.items():
            found += order_findings(topic, checker.report(), "right")
        found += [Finding("sum", topic, -1, -1, -1, 0, "both") for topic in counts]
        if found:
            counted = _as_findings(found)
            sums = [counts[f.topic] if f.kind == "sum" else (0, 0) for f in found]
            for at, name in enumerate(("left", "right")):
                counted = counted.append_column(
                    name, pa.array([pair[at] for pair in sums], pa.int64())
                )
            yield counted


def _each(batches: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = (batch.column(n).to_pylist() for n in range(batch.num_columns))
        yield from zip(*columns, strict=True)


def match_key(
    topic: str, left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], checker: OrderChecker
) -> list[Finding]:
    """One key's records: numbered on the left within each partition, found on the right by content,
    and passed to the checker in the right's order. Returns the records that the left does not have.
    """
    waiting: dict[int, deque[tuple[bytes, int]]] = defaultdict(deque)
    last: dict[int, tuple[bytes, int]] = {}
    numbers: dict[bytes, int] = defaultdict(int)
    for row in left:
        key = b"(no key)" if row[6] is None else bytes(row[6])
        name = key + b" of partition %d" % row[3]
        waiting[row[5]].append((name, numbers[name]))
        numbers[name] += 1
    extra: list[Finding] = []
    for row in right:
        tp, offset, content = TopicPartition(topic, row[3]), row[4], row[5]
        if waiting[content]:
            last[content] = waiting[content].popleft()
        elif content not in last:
            extra.append(Finding("extra", topic, row[3], offset, offset + 1, 1, "left"))
            continue
        checker.see(*last[content], tp, offset)
    # Missing numbers below the largest are the checker's gaps; those at the end are reported here.
    for name, count in numbers.items():
        checker.see_end(name, count)
    return extra
