"""Reads both sides of a verification in this process, without Spark: for two clusters with small
topics. The sums are those of verify.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

from kstore.pipeline.jobs.scans.entries import BLOCK

__all__ = ["Sum", "by_block", "summed"]

_COLUMNS = [
    "entry", "topic", "partition", "kind", "offset", "endOffset", "records", "digest",
    "leaderEpoch",
]  # fmt: skip


class Sum(NamedTuple):
    """The sum of all entries of a block, of a fault, or of the holes of one kind. `block` is None
    except for blocks; `offsets` is the number of offsets of the entries.
    """

    entry: str
    topic: str
    partition: int
    kind: str | None
    block: int | None
    first: int
    until: int
    records: int
    digest: int
    epoch: int
    offsets: int


def summed(batches: Iterable[Any]) -> list[Sum]:
    """The sums of entries, which arrive as RecordBatches."""
    found: dict[tuple[Any, ...], Sum] = {}
    for batch in batches:
        for row in batch.select(_COLUMNS).to_pylist():
            each = _of(row)
            # A hole needs no position; a fault keeps its own.
            key = (*each[:5], each.first if each.entry == "fault" else None)
            there = found.get(key)
            found[key] = each if there is None else _added(there, each)
    return list(found.values())


def _of(row: dict[str, Any]) -> Sum:
    """Add an entry."""
    first, until = row["offset"], row["endOffset"]
    block = first // BLOCK if row["entry"] == "block" else None
    return Sum(
        row["entry"], row["topic"], row["partition"], row["kind"], block, first, until,
        row["records"] or 0, row["digest"] or 0,
        -1 if row["leaderEpoch"] is None else row["leaderEpoch"], until - first,
    )  # fmt: skip


def _added(one: Sum, other: Sum) -> Sum:
    return one._replace(
        first=min(one.first, other.first),
        until=max(one.until, other.until),
        records=one.records + other.records,
        digest=one.digest ^ other.digest,
        epoch=max(one.epoch, other.epoch),
        offsets=one.offsets + other.offsets,
    )


def by_block(
    sides: tuple[Iterable[Any], Iterable[Any]], compare: Callable[[Any, Any], Any]
) -> Iterator[dict[str, Any]]:
    """The rows that ``compare`` returns for each block, from its hashes on both sides as tables;
    the table is empty if a side has none. ``sides``: hashes as RecordBatches.
    """
    blocks: dict[tuple[Any, ...], list[list[Any]]] = defaultdict(lambda: [[], []])
    schema = pa.schema([])
    for number, batches in enumerate(sides):
        for batch in batches:
            schema = batch.schema
            table = pa.Table.from_batches([batch])
            keys = table.select(["topic", "partition", "block"])
            for key in keys.group_by(keys.column_names).aggregate([]).to_pylist():
                same = table
                for name, value in key.items():
                    same = same.filter(pa.compute.equal(same[name], value))
                blocks[tuple(key.values())][number].append(same)
    for key in sorted(blocks):
        left, right = (pa.concat_tables(t) if t else schema.empty_table() for t in blocks[key])
        yield from compare(left, right).to_pylist()
