"""bench/pipeline: what its table says, and how rows are made of two sides. No Spark runs here."""

from __future__ import annotations

import pytest

from bench import pipeline
from bench.measure import Side


def test_every_read_has_the_goal_of_its_way_unless_it_is_another_query() -> None:
    for _, way, note, goal in pipeline.READS:
        assert goal == (None if note else {"brokers": 1.5, "segments": 3.0}[way])


def test_rows_per_cpu_second_carry_the_goal() -> None:
    ours = Side({"per_cpu_s": [4.0, 6.0], "rate": [1.0], "cpu_us": [2.0], "all_us": [3.0]})
    theirs = Side({"per_cpu_s": [2.0], "rate": [1.0], "cpu_us": [2.0], "all_us": [3.0]})
    rows = pipeline.compared("count 100 B", ours, theirs, 3.0)
    assert [row.case for row in rows] == [
        "count 100 B: rows per CPU s",
        "count 100 B: rows/s",
        "count 100 B: CPU s per million rows",
        "count 100 B: the same with the broker's",
    ]
    assert rows[0].ratio == pytest.approx(2.5)
    assert [row.reached for row in rows] == [False, None, None, None]


def test_latency_is_to_be_at_most_its_share_of_the_connectors() -> None:
    ours = Side({"p50_ms": [60.0], "p99_ms": [90.0], "cpu_share": [0.5]})
    theirs = Side({"p50_ms": [100.0], "p99_ms": [100.0], "cpu_share": [0.5]})
    rows = pipeline.latencies({"": ours, pipeline.PEER: theirs})
    assert [row.reached for row in rows] == [True, False, None]
    assert rows[0].case == "stream latency: p50 from append to sink"
