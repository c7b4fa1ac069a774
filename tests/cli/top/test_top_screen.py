"""The rates between two samples, and the lines for any width and height."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.cli.top.http_pages import values
from kstore.cli.top.sample import (
    BrokerSample,
    GroupSample,
    Hold,
    Sample,
    TopicSample,
    rows_between,
)
from kstore.cli.top.screen import Order, amount, screen_lines, size
from kstore.types import TopicPartition

ONE, TWO = TopicPartition("a", 0), TopicPartition("a", 1)


def sample(at_s: float, ends: tuple[int, int], committed: int, cpu_s: float, **more: Any) -> Sample:
    """Two partitions of one topic on two brokers, the first with an HTTP listener."""
    counters = {"cpu_seconds": cpu_s, "requests": cpu_s * 1000, "connections": 3.0}
    holds = (Hold("Produce", int(at_s), at_s / 10, 0.05),)
    return Sample(
        1000 + at_s, at_s,
        {
            1: BrokerSample("h:1", True, 1, 2, 700, 10**9, counters, holds),
            2: BrokerSample("h:2", False, 1, 2, 700, 10**9),
        },
        {"a": TopicSample({ONE: ends[0], TWO: ends[1]}, {ONE: ends[0] * 10}, 2, 0, 1)},
        {"g": GroupSample("Stable", 2, sum(ends) - committed, {ONE: committed})},
        {ONE: 1, TWO: 2},
        **more,
    )  # fmt: skip


def test_rates_are_the_growth_between_two_samples() -> None:
    rows = rows_between(sample(10, (100, 50), 20, 1.0), sample(12, (160, 60), 40, 2.0))
    assert rows["seconds"] == 2
    first, second = rows["brokers"]
    assert (first["records_per_s"], second["records_per_s"]) == (30, 5)
    assert (first["cpu_percent"], first["requests_per_s"], first["connections"]) == (50, 500, 3)
    assert (second["cpu_percent"], second["requests_per_s"], second["connections"]) == (None,) * 3
    (topic,) = rows["topics"]
    assert (topic["records_per_s"], topic["bytes_per_s"], topic["size_bytes"]) == (35, 300, 1600)
    (group,) = rows["groups"]
    assert (group["lag"], group["lag_change"], group["records_per_s"]) == (180, 50, 10)
    (hold,) = rows["holds"]
    assert (hold["held_by"], hold["holds"], round(hold["held_ms"]), hold["max_ms"]) == (
        "Produce", 2, 200, 50,
    )  # fmt: skip


def test_what_shrinks_or_is_new_has_no_rate() -> None:
    """A topic created again, a partition that was truncated, a broker that was restarted."""
    rows = rows_between(sample(10, (100, 50), 20, 9.0), sample(12, (0, 0), 0, 1.0))
    assert {row["records_per_s"] for row in rows["brokers"] + rows["topics"] + rows["groups"]} == {
        0
    }
    assert rows["brokers"][0]["cpu_percent"] == 0
    nothing = Sample(0, 10, {}, {}, {}, {})
    rows = rows_between(nothing, sample(12, (160, 60), 40, 2.0))
    assert rows["topics"][0]["records_per_s"] == 0
    assert rows["brokers"][0]["cpu_percent"] is None
    assert rows["groups"][0]["lag_change"] is None


def rows_of(topics: int = 3) -> dict[str, Any]:
    rows = rows_between(sample(10, (100, 50), 20, 1.0), sample(12, (160, 60), 40, 2.0))
    row = rows["topics"][0]
    rows["topics"] = [
        row | {"topic": f"topic-{n}", "bytes_per_s": n, "size_bytes": -n} for n in range(topics)
    ]
    return rows


def texts(*arguments: Any, **more: Any) -> list[str]:
    return [line.text for line in screen_lines(*arguments, **more)]


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = texts(rows_of(), Order(), width, 30)
    assert max(map(len, lines)) <= width
    assert any(line.startswith("TOP") for line in lines)


def test_the_least_important_columns_are_left_out_first() -> None:
    def header(width: int) -> list[str]:
        lines = texts(rows_of(), Order(), width, 30)
        return next(line for line in lines if line.startswith("BROKER")).split()

    assert header(200)[-1] == "ADDRESS"
    assert header(80)[-2:] == ["LOG", "FREE"]
    assert header(60)[-3:] == ["CONN", "LEADERS", "LOG"]
    assert header(20) == ["BROKER", "CPU", "REC/S"]
    assert header(14) == ["BROKER", "REC/S"]


def test_each_section_has_its_share_of_the_height() -> None:
    lines = texts(rows_of(topics=100), Order(), 80, 20)
    assert len(lines) <= 20
    assert sum(line.startswith("topic-") for line in lines) == 6
    assert {"g", "Produce"} <= {line.split()[0] for line in lines if line}
    assert len(texts(rows_of(topics=100), Order(), 80, None)) > 100


@pytest.mark.parametrize(
    ("order", "first"), [("rate", "topic-2"), ("size", "topic-0"), ("name", "topic-0")]
)
def test_topics_are_sorted_as_chosen(order: str, first: str) -> None:
    chosen = Order()
    chosen.choose(order)
    lines = texts(rows_of(), chosen, 80, None)
    assert next(line for line in lines if line.startswith("topic-")).split()[0] == first


def test_an_order_is_that_of_the_sections_that_know_it() -> None:
    order = Order()
    order.choose("size")
    assert (order.topics, order.groups) == ("size", "lag")
    order.choose("name")
    assert (order.topics, order.groups) == ("name", "name")


def test_offline_partitions_stand_out() -> None:
    rows = rows_of(topics=1)
    rows["topics"][0]["offline"] = 1
    lines = {line.text.split()[0]: line.style for line in screen_lines(rows, Order(), 80, 30)
             if line.text}  # fmt: skip
    assert lines["topic-0"] == "bad"


def test_a_note_and_left_out_groups_are_shown() -> None:
    lines = texts(rows_of() | {"left_out_groups": 7}, Order(), 80, 30, note="no broker answers")
    assert "no broker answers" in lines
    assert "7 more groups were not asked" in lines


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9_990, "10.0k"), (12_345, "12k"),
     (3_400_000, "3.4M"), (5e15, "5000T"), (None, "-"), (-1500, "-1.5k")],
)  # fmt: skip
def test_numbers_are_short(value: float | None, shown: str) -> None:
    assert amount(value) == shown
    assert size(value) == ("-" if value is None else f"{shown}B")


def test_metrics_are_read_line_by_line() -> None:
    text = '# TYPE a counter\na 1\nb{x="1",y="q\\"}"} 2.5\nb{x="2"} 1e3\n\nnonsense\n'
    assert list(values(text)) == [
        ("a", {}, 1.0), ("b", {"x": "1", "y": 'q\\"}'}, 2.5), ("b", {"x": "2"}, 1000.0),
    ]  # fmt: skip
