"""Reports of a verification: Parquet tables and one HTML page with plots, in a folder that may be
anywhere that Spark can write to.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kstore.pipeline.jobs.reports import pages, plots
from kstore.pipeline.jobs.session import small_frame, small_table
from kstore.pipeline.jobs.verification.compare import BAD, FINDING_DDL, SUMMARY_DDL

if TYPE_CHECKING:
    from markupsafe import Markup
    from pyspark.sql import SparkSession

    from kstore.pipeline.jobs.verification.verify import Verification

__all__ = ["PAGE", "verification_page", "write_table", "write_text", "write_verification"]

PAGE = "report.html"
BLOCKS_DDL = (
    "topic string, partition int, block bigint, left_records bigint, right_records bigint, "
    "equal boolean"
)
SHOWN_PARTITIONS = 60


def write_verification(
    spark: SparkSession | None, folder: str, found: Verification, left: str, right: str
) -> str:
    """Write summary, findings, blocks and the page; returns the page's path."""
    write_table(spark, folder, "summary", [s.row() for s in found.summaries], SUMMARY_DDL)
    write_table(spark, folder, "findings", [asdict(f) for f in found.findings], FINDING_DDL)
    names = [part.split()[0] for part in BLOCKS_DDL.split(", ")]
    blocks = [dict(zip(names, row, strict=True)) for row in found.blocks]
    write_table(spark, folder, "blocks", blocks, BLOCKS_DDL)
    return write_text(spark, folder, PAGE, verification_page(found, left, right))


def write_table(
    spark: SparkSession | None, folder: str, name: str, rows: Sequence[dict[str, Any]], ddl: str
) -> None:
    """A table of a report, in one file; replaces an earlier one in the folder. Without Spark, the
    folder is on this machine.
    """
    if spark is not None:
        frame = small_frame(spark, rows, ddl).coalesce(1)
        frame.write.mode("overwrite").parquet(f"{folder.rstrip('/')}/{name}")
        return
    import pyarrow.parquet as pq

    place = Path(_local(folder) or folder, name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    pq.write_table(small_table(rows, ddl), place / "part-00000.parquet")


def _local(folder: str) -> str | None:
    """The path, if it is on this machine."""
    parts = urlsplit(folder)
    return {"": folder, "file": parts.path}.get(parts.scheme)


def write_text(spark: SparkSession | None, folder: str, name: str, text: str) -> str:
    """Write a text file next to the tables; returns its path."""
    path = f"{folder.rstrip('/')}/{name}"
    here = _local(path)
    if here is not None:
        Path(here).write_text(text, encoding="utf-8")
        return path
    assert spark is not None
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs.Path(path)
    system = hadoop.getFileSystem(context._jsc.hadoopConfiguration())
    stream = system.create(hadoop, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
    return path


# ---- the page of a verification ----


def verification_page(found: Verification, left: str, right: str) -> str:
    """What was compared, what was found, and where."""
    summaries = found.summaries
    compared = sum(max(s.compared_end - s.compared_start, 0) for s in summaries)
    bad = len({(f.topic, f.partition) for f in found.findings})
    verdict = (
        "No differences and no damage found."
        if found.is_good
        else f"{_count(len(found.findings), 'finding')} in {bad} of {len(summaries)} partitions."
    )
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    body: list[Markup | None] = [
        pages.tiles(
            [
                ("partitions", len(summaries)),
                ("offsets compared", compared),
                ("records on the left", sum(s.left_records for s in summaries)),
                ("records on the right", sum(s.right_records for s in summaries)),
                ("findings", len(found.findings)),
            ]
        ),
        _kinds(found),
        _blocks(found),
        _records(found),
        _findings(found),
        _partitions(found),
    ]
    if found.notes:
        notes = pages.table(["note"], [[note] for note in found.notes])
        body.append(pages.section("Notes", "These are not failures.", notes))
    about = f"Left: {left}. Right: {right}. {when}."
    return pages.page(
        "kstore pipeline verify", verdict, about, [part for part in body if part is not None]
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _kinds(found: Verification) -> Markup | None:
    if not found.findings:
        return None
    counts: Counter[str] = Counter()
    for finding in found.findings:
        counts[finding.kind] += max(finding.records, 1)
    rows = [(kind, [count]) for kind, count in counts.most_common()]
    explained = pages.table(["kind", "what it counts"], [[kind, BAD[kind]] for kind in counts])
    return pages.section(
        "What was found", "Records by kind of finding.", plots.bars(rows, ["records"]), explained
    )


def _blocks(found: Verification) -> Markup | None:
    by_partition: dict[str, list[pages.Cell]] = defaultdict(list)
    for topic, partition, block, left, right, equal in found.blocks:
        look = "good" if equal else "bad" if not (left and right) else "half"
        text = f"block {block}: {left:,} records on the left, {right:,} on the right"
        by_partition[f"{topic}-{partition}"].append(pages.Cell(look, text))
    if not by_partition:
        return None
    worst = sorted(
        by_partition.items(), key=lambda row: (-sum(c.look != "good" for c in row[1]), row[0])
    )
    keys = [("good", "equal"), ("half", "differs"), ("bad", "on one side only")]
    return pages.section(
        "Where", f"Each cell is a block of offsets, in their order.{_shown(len(worst))}",
        pages.strips(worst[:SHOWN_PARTITIONS], keys),
    )  # fmt: skip


def _records(found: Verification) -> Markup:
    rows = [
        (f"{s.topic}-{s.partition}", [s.left_records, s.right_records]) for s in found.summaries
    ]
    rows.sort(key=lambda row: -abs(row[1][0] - row[1][1]))
    return pages.section(
        "Records by partition", f"Within the offsets that both cover.{_shown(len(rows))}",
        plots.bars(rows[:SHOWN_PARTITIONS], ["left", "right"]),
    )  # fmt: skip


def _shown(count: int) -> str:
    if count <= SHOWN_PARTITIONS:
        return ""
    return f" The {SHOWN_PARTITIONS} partitions that differ most, of {count}."


def _findings(found: Verification) -> Markup | None:
    if not found.findings:
        return None
    names = ["kind", "topic", "partition", "from offset", "to before", "records", "side", "detail"]
    rows = [list(asdict(finding).values()) for finding in found.findings]
    return pages.section("Findings", "By topic, partition and offset.", pages.table(names, rows))


def _partitions(found: Verification) -> Markup:
    names = [
        "topic", "partition", "left", "right", "compared", "blocks equal", "holes left",
        "holes right", "epoch left", "epoch right", "good",
    ]  # fmt: skip
    rows = [
        [
            s.topic,
            s.partition,
            f"{s.left_start:,}…{s.left_end:,}",
            f"{s.right_start:,}…{s.right_end:,}",
            f"{s.compared_start:,}…{s.compared_end:,}",
            f"{s.blocks_equal}/{s.blocks}",
            s.left_holes,
            s.right_holes,
            s.left_epoch,
            s.right_epoch,
            s.findings == 0,
        ]
        for s in found.summaries
    ]
    about = "Offsets from the first to before the last; holes are offsets without a record."
    return pages.section("Partitions", about, pages.table(names, rows))
