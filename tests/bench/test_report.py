"""bench/report.py: what a goal means, and what is written."""

from __future__ import annotations

import json

import pytest

from bench.report import Goal, Row, markdown, write


@pytest.mark.parametrize(
    ("goal", "value", "peer", "reached"),
    [
        (Goal(2), 4.0, 2.0, True),
        (Goal(2), 3.9, 2.0, False),
        (Goal(1 / 3, at_least=False), 1.0, 3.0, True),
        (Goal(1 / 3, at_least=False), 1.1, 3.0, False),
        (Goal(50, at_least=False, of="value"), 50.0, None, True),
        (Goal(50, at_least=False, of="value"), 51.0, 400.0, False),
        (Goal(2), 4.0, None, None),
        (None, 4.0, 2.0, None),
    ],
)
def test_a_goal_limits_the_ratio_or_the_value(goal, value, peer, reached):
    assert Row("g", "c", value, "u", "p", peer, goal).reached is reached


def test_the_table_says_no_where_a_goal_was_missed():
    rows = [Row("g", "fast", 4.0, "MB/s", "peer", 2.0, Goal(3)), Row("g", "alone", 1234.5, "us")]
    lines = markdown(rows, {"python": "3"}).splitlines()
    assert "- python: 3" in lines
    assert [cell.strip() for cell in lines[-2].split("|")[1:-1]] == [
        "g", "fast", "4", "2 (peer)", "2x", "MB/s", "≥ 3x", "NO", "",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[-1].split("|")[1:-1]] == [
        "g", "alone", "1,234", "", "", "us", "", "", "",
    ]  # fmt: skip


@pytest.mark.slow
def test_table_json_and_plot_are_written(tmp_path):
    page = write([Row("g", "c", 4.0, "MB/s", "peer", 2.0, Goal(3))], {"python": "3"}, tmp_path)
    assert (tmp_path / "results.md").read_text() == page
    (row,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert (row["ratio"], row["reached"]) == (2.0, False)
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")


def test_a_cell_without_a_figure_says_why_and_ours_misses_its_goal():
    ours = Row("g", "c", None, "ms", "Kafka", 4.0, Goal(1), state="not served")
    theirs = Row("g", "c", 2.0, "ms", "Kafka", None, Goal(1), peer_state="failed: a | b",
                 spread=(1.0, 3.0))  # fmt: skip
    lines = markdown([ours, theirs], {}).splitlines()
    assert [cell.strip() for cell in lines[-2].split("|")[1:-1]] == [
        "g", "c", "not served", "4 (Kafka)", "", "ms", "≥ 1x", "NO", "",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[-1].split("|")[1:-1]] == [
        "g", "c", "2 [1 .. 3]", "failed: a / b (Kafka)", "", "ms", "≥ 1x", "", "",
    ]  # fmt: skip
