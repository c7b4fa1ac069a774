"""The report of the job stats: Parquet tables and one HTML page with plots. See report.py."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.reports import pages, plots
from kstore.pipeline.jobs.reports.report import PAGE, write_table, write_text
from kstore.pipeline.jobs.reports.stats import HOUR_MS, Stats, bucket_size

if TYPE_CHECKING:
    from markupsafe import Markup
    from pyspark.sql import SparkSession

__all__ = ["show_key", "stats_page", "topic_rows", "write_stats"]

_PARTITIONS = (
    "topic string, partition int, start bigint, end bigint, records bigint, key_bytes bigint, "
    "value_bytes bigint, null_keys bigint, tombstones bigint, with_headers bigint, "
    "largest bigint, first_time bigint, last_time bigint"
)
_KEYS = "topic string, key binary, records bigint, value_bytes bigint"
_SIZES = "topic string, size bigint, below bigint, records bigint"
_TIMES = "topic string, hour_ms bigint, records bigint"
_LAGS = "`group` string, topic string, partition int, committed bigint, end bigint, lag bigint"
MAX_COLUMNS = 120
SHOWN = 40


def write_stats(spark: SparkSession | None, folder: str, found: Stats, source: str) -> str:
    """Write partitions, keys, sizes, times, lags and the page; returns the page's path."""
    tables: list[tuple[str, list[dict[str, Any]], str]] = [
        ("partitions", [asdict(part) for part in found.partitions], _PARTITIONS),
        ("keys", [asdict(key) for key in found.keys], _KEYS),
        ("sizes", list(_sizes(found)), _SIZES),
        ("times", list(_times(found)), _TIMES),
        ("lags", [asdict(lag) | {"lag": lag.lag} for lag in found.lags], _LAGS),
    ]
    for name, rows, ddl in tables:
        write_table(spark, folder, name, rows, ddl)
    return write_text(spark, folder, PAGE, stats_page(found, source))


def _sizes(found: Stats) -> Any:
    for topic, counts in sorted(found.sizes.items()):
        for bucket, records in sorted(counts.items()):
            low, high = bucket_size(bucket), bucket_size(bucket + 1)
            yield {"topic": topic, "size": low, "below": high, "records": records}


def _times(found: Stats) -> Any:
    for topic, counts in sorted(found.times.items()):
        for hour, records in sorted(counts.items()):
            yield {"topic": topic, "hour_ms": hour * HOUR_MS, "records": records}


def show_key(key: bytes | None) -> str:
    """A key for people to read."""
    if key is None:
        return "(no key)"
    text = key.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def topic_rows(found: Stats) -> list[dict[str, Any]]:
    """A row per topic: content, size, skew."""
    rows = []
    for topic in sorted({part.topic for part in found.partitions}):
        parts = found.of(topic)
        records = sum(part.records for part in parts)
        top = max((k.records for k in found.keys if k.topic == topic), default=0)
        rows.append(
            {
                "topic": topic,
                "partitions": len(parts),
                "records": records,
                "bytes": sum(part.key_bytes + part.value_bytes for part in parts),
                "keys": found.distinct_keys.get(topic, 0),
                "null_keys": sum(part.null_keys for part in parts),
                "tombstones": sum(part.tombstones for part in parts),
                "p50_bytes": found.size_at(topic, 0.5),
                "p99_bytes": found.size_at(topic, 0.99),
                "largest_bytes": max((part.largest for part in parts), default=0),
                "partition_skew": round(found.skew(topic), 3),
                "top_key_share": round(top / records, 4) if records else 0.0,
                "lag": sum(lag.lag for lag in found.lags if lag.topic == topic),
            }
        )
    return rows


def stats_page(found: Stats, source: str) -> str:
    """The page."""
    rows = topic_rows(found)
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    verdict = f"{len(rows)} topics, {sum(row['records'] for row in rows):,} records."
    body = [
        pages.tiles(
            [
                ("records", sum(row["records"] for row in rows)),
                ("keys and values", pages.Size(sum(row["bytes"] for row in rows))),
                ("distinct keys", sum(row["keys"] for row in rows)),
                ("partitions", len(found.partitions)),
                ("groups behind", len({lag.group for lag in found.lags if lag.lag})),
            ]
        ),
        pages.section(
            "Topics",
            "Sizes are of key and value; skew is the largest partition over the mean.",
            _topics(rows),
        ),
    ]
    body += [_topic(found, row["topic"]) for row in rows]
    if found.lags:
        body.append(_lag(found))
    return pages.page("kstore pipeline stats", verdict, f"Of {source}. {when}.", body)


def _topics(rows: list[dict[str, Any]]) -> Markup:
    """The table of topics; numbers of bytes are shown as sizes."""
    names = [name.replace("_bytes", " size").replace("_", " ") for name in rows[0]]
    names[names.index("bytes")] = "size"
    shown = [
        [pages.Size(value) if name.endswith("bytes") else value for name, value in row.items()]
        for row in rows
    ]
    return pages.table(names, shown)


def _topic(found: Stats, topic: str) -> Markup:
    parts = found.of(topic)
    made = [
        pages.section(
            f"{topic}: records by partition", f"{len(parts)} partitions.",
            plots.bars(
                [(f"partition {p.partition}", [p.records]) for p in parts[:SHOWN]], ["records"]
            ),
        )
    ]  # fmt: skip
    keys = [key for key in found.keys if key.topic == topic]
    if keys:
        count = found.distinct_keys.get(topic, 0)
        made.append(
            pages.section(
                f"{topic}: most frequent keys", f"Records of each; {count:,} keys in all.",
                plots.bars([(show_key(key.key), [key.records]) for key in keys], ["records"]),
            )
        )  # fmt: skip
    sizes = found.sizes.get(topic, {})
    if sizes:
        span = range(min(sizes), max(sizes) + 1)
        counted = [(pages.number(pages.Size(bucket_size(b))), sizes.get(b, 0)) for b in span]
        made.append(
            pages.section(
                f"{topic}: sizes of records",
                "Records by the size of key and value; each bar begins at the size below it.",
                plots.columns(counted, "records by size"),
            )
        )  # fmt: skip
    times = found.times.get(topic, {})
    if times:
        step, counted = _spans(times)
        made.append(
            pages.section(
                f"{topic}: records by time", f"By their timestamps; each bar is {step}.",
                plots.columns(counted, "records by time"),
            )
        )  # fmt: skip
    return pages.grid(*made)


def _spans(times: dict[int, int]) -> tuple[str, list[tuple[str, int]]]:
    """Records by hour, day or longer, so that the bars are wide enough."""
    first, last = min(times), max(times)
    known = ((1, "an hour"), (24, "a day"), (24 * 7, "a week"), (24 * 30, "30 days"))
    longest = (last - first) // MAX_COLUMNS + 1
    fitting = [step for step in known if step[0] >= longest]
    hours, name = fitting[0] if fitting else (longest, f"{longest // 24} days")
    counts: dict[int, int] = {}
    for hour, records in times.items():
        counts[hour // hours] = counts.get(hour // hours, 0) + records
    shape = "%Y-%m-%d %H:00" if hours == 1 else "%Y-%m-%d"
    spans = range(first // hours, last // hours + 1)
    named = [
        (
            time.strftime(shape, time.gmtime(min(span * hours * 3600, 253_402_300_799))),
            counts.get(span, 0),
        )
        for span in spans
    ]
    return name, named


def _lag(found: Stats) -> Markup:
    by_group: dict[tuple[str, str], int] = {}
    for lag in found.lags:
        place = lag.group, lag.topic
        by_group[place] = by_group.get(place, 0) + lag.lag
    rows = sorted(by_group.items(), key=lambda row: -row[1])
    shown = [(f"{group}: {topic}", [lag]) for (group, topic), lag in rows[:SHOWN]]
    names = ["group", "topic", "partition", "committed", "end", "lag"]
    each = [[lag.group, lag.topic, lag.partition, lag.committed, lag.end, lag.lag]
            for lag in found.lags]  # fmt: skip
    return pages.section(
        "Lag of groups", "Offsets between what a group has committed and the end.",
        plots.bars(shown, ["offsets"]), pages.table(names, each),
    )  # fmt: skip
