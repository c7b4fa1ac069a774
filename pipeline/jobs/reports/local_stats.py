"""The job stats in this process, without Spark: for topics that can be read before Spark has
started. Arrow adds up the sums of stats.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.reports.stats import (
    SUMMED,
    Fold,
    KeyStats,
    PartitionStats,
    Stats,
    StatsScan,
    group_lags,
    take_sums,
)
from kstore.pipeline.jobs.scans.scan import Range
from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide

__all__ = ["gather_here"]

PIECES = 64
"""The number of sums that are added up at a time."""
_BY = ["entry", "topic", "partition", "number"]
_AGGREGATES: list[tuple[str, str]] = [
    *((name, "sum") for name in SUMMED),
    ("largest", "max"), ("firstTime", "min"), ("lastTime", "max"), ("key", "min"),
]  # fmt: skip


def gather_here(
    side: ClusterSide | ArchiveSide,
    wanted: re.Pattern[str],
    report: Callable[[str], None],
    *,
    top: int = 20,
) -> Stats:
    """As `stats.gather`. Raises JobError, PipelineError, KafkaError."""
    extents = side.covers(None, wanted)
    if not extents:
        raise JobError(f"no topic matches {wanted.pattern!r}")
    ranges = [Range(*place, extent.start, extent.end) for place, extent in extents.items()]
    report(f"{len(ranges)} partitions, {sum(each.size for each in ranges)} offsets")
    found = Stats()
    parts = {place: PartitionStats(*place, *extent) for place, extent in extents.items()}
    found.partitions = [parts[place] for place in sorted(parts)]
    sums = _added(_folded(side, [each for each in ranges if each.size]))
    rows = [] if sums is None else sums.to_pylist()
    take_sums([row for row in rows if row["entry"] != "key"], found, parts)
    _keys([row for row in rows if row["entry"] == "key"], found, top)
    if isinstance(side, ClusterSide):
        found.lags = group_lags(side.settings, parts)
    return found


def _folded(side: ClusterSide | ArchiveSide, ranges: list[Range]) -> Iterator[Any]:
    """The sums of what is read at a time."""
    if isinstance(side, ClusterSide):
        plan = StatsScan(side.settings, read_committed=side.read_committed)
        return (batch for each in ranges for batch in plan.read(each))
    side.check_files(None)
    return Fold()(side.records_here(ranges))


def _added(batches: Iterable[Any]) -> Any:
    """One row for each sum; None where there are none."""
    total, waiting = None, []
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]))
        if len(waiting) == PIECES:
            total, waiting = _sum([*([] if total is None else [total]), *waiting]), []
    tables = [*([] if total is None else [total]), *waiting]
    return _sum(tables) if tables else None


def _sum(tables: list[Any]) -> Any:
    found = pa.concat_tables(tables).group_by(_BY).aggregate(_AGGREGATES)
    found = found.rename_columns([re.sub("_(sum|min|max)$", "", n) for n in found.column_names])
    return found.select(tables[0].column_names)


def _keys(rows: list[dict[str, Any]], found: Stats, top: int) -> None:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_topic.setdefault(row["topic"], []).append(row)
    for topic, keys in sorted(by_topic.items()):
        found.distinct_keys[topic] = len(keys)
        keys.sort(key=lambda row: (-row["records"], row["number"]))
        found.keys += [KeyStats(topic, k["key"], k["records"], k["valueBytes"]) for k in keys[:top]]
