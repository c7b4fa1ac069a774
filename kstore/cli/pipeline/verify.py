"""``kstore pipeline verify`` and ``stats``: run the job and print its results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.cli.pipeline.run import Running
    from kstore.pipeline.jobs.verification.compare import Finding
    from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide

__all__ = ["run_stats", "run_verify"]

SHOWN = 20


def run_verify(
    running: Running,
    topics: re.Pattern[str],
    sides: Sequence[ClusterSide | ArchiveSide],
    names: Sequence[str],
    *,
    match: str,
    number: str | None,
    key: str,
    allow_behind: bool,
    report: str | None,
) -> bool:
    """Verify and print; returns whether nothing was found."""
    from kstore.pipeline.jobs.reports.report import write_verification
    from kstore.pipeline.jobs.verification.key_order import numbered, same_order
    from kstore.pipeline.jobs.verification.verify import Verification, VerifyOptions, verify

    right = sides[1] if len(sides) > 1 else None
    if match == "keys":
        assert right is not None
        found = same_order(running.spark, topics, sides[0], right, running.print)
    else:
        options = VerifyOptions(topics, sides[0], right, allow_behind)
        found = verify(running.spark_or_none, options, running.print)
    if number is not None:
        for name, side in zip(("left", "right"), sides, strict=False):
            found.findings += numbered(
                running.spark, topics, side, name, key, number, running.print
            )
    if report:
        other = names[1] if right is not None else "nothing: only the left one is checked"
        path = write_verification(running.spark_or_none, report, found, names[0], other)
        running.print(f"the report is {path}")
    assert isinstance(found, Verification)
    for finding in found.findings:
        running.row(asdict(finding))
    for note in found.notes:
        running.print(note)
    _tell(running, found.findings)
    records = sum(each.left_records for each in found.summaries)
    counts = Counter(finding.kind for finding in found.findings)
    done = {
        "good": found.is_good,
        "partitions": len(found.summaries),
        "records": records,
        "findings": dict(counts),
    }
    message = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    running.done(
        done,
        f"{records} records in {len(found.summaries)} partitions: "
        + (f"findings: {message}" if message else "no problems"),
    )
    return found.is_good


def _tell(running: Running, findings: Sequence[Finding]) -> None:
    if running.json:
        return
    for f in findings[:SHOWN]:
        place = f"{f.topic}-{f.partition}" if f.partition >= 0 else f.topic
        span = "" if f.start < 0 else f" at offset {f.start}"
        if f.end > f.start + 1:
            span = f" at offsets {f.start} to {f.end - 1}"
        detail = f" ({f.detail})" if f.detail else ""
        print(f"{f.kind}: {place}{span}, {f.records} records, {f.side}{detail}")
    if len(findings) > SHOWN:
        print(f"and {len(findings) - SHOWN} more: --report or --json shows all")


def run_stats(
    running: Running,
    topics: re.Pattern[str],
    side: ClusterSide | ArchiveSide,
    name: str,
    *,
    top: int,
    report: str | None,
) -> None:
    """Collect and print the statistics."""
    from kstore.pipeline.jobs.reports.local_stats import gather_here
    from kstore.pipeline.jobs.reports.stats import gather
    from kstore.pipeline.jobs.reports.stats_report import show_key, topic_rows, write_stats

    spark = running.spark_or_none
    if spark is not None:
        found = gather(spark, side, topics, running.print, top=top)
    else:
        found = gather_here(side, topics, running.print, top=top)
    if report:
        path = write_stats(spark, report, found, name)
        running.print(f"the report is {path}")
    rows = topic_rows(found)
    if running.json:
        for row in rows:
            running.row({"kind": "topic"} | row)
        for part in found.partitions:
            running.row({"kind": "partition"} | asdict(part))
        for key in found.keys:
            running.row({"kind": "key"} | asdict(key) | {"key": show_key(key.key)})
        for lag in found.lags:
            running.row({"kind": "lag"} | asdict(lag) | {"lag": lag.lag})
    else:
        Output(False).table(rows, list(rows[0]))
        for key in found.keys[:SHOWN]:
            print(f"{key.topic}: {key.records} records of key {show_key(key.key)}")
    records = sum(row["records"] for row in rows)
    done = {"topics": len(rows), "records": records}
    running.done(done, f"{records} records in {len(rows)} topics")
