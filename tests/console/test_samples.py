"""The console's view of two samples of a cluster, of sizes and times, and of plots."""

from __future__ import annotations

from uuid import UUID

import pytest

from kstore.clients.admin import PartitionDescription, TopicDescription
from kstore.console.app import _safe_next
from kstore.console.cluster.sampler import Seen, changes
from kstore.console.pages.plots import plot
from kstore.console.pages.shown import (
    shown_age,
    shown_bytes,
    shown_count,
    shown_moment,
    shown_number,
)


def topic(name: str, *partitions: tuple[int, int, tuple[int, ...]]) -> TopicDescription:
    """A topic of (leader, leader epoch, ISR) partitions on brokers 1 and 2."""
    rows = tuple(
        PartitionDescription(index, leader, epoch, (1, 2), isr)
        for index, (leader, epoch, isr) in enumerate(partitions)
    )
    return TopicDescription(name, UUID(int=1), False, rows)


def test_elections_expansions_and_isr_changes_are_told() -> None:
    before = Seen(
        1.0, {}, {"t": topic("t", (1, 0, (1, 2))), "old": topic("old")}, frozenset({1, 2}), 1
    )
    after = Seen(
        2.0, {}, {"t": topic("t", (2, 1, (2,)), (2, 0, (2,))), "new": topic("new")},
        frozenset({2, 3}), 2,
    )  # fmt: skip
    assert [(each.kind, each.what, each.text) for each in changes(before, after)] == [
        ("broker", "broker 3", "joined the cluster"),
        ("broker", "broker 1", "left the cluster"),
        ("election", "controller", "1 → 2"),
        ("topic", "new", "created with 0 partitions"),
        ("topic", "old", "deleted"),
        ("expansion", "t", "1 → 2 partitions"),
        ("election", "t-0", "leader 1 → 2, leader epoch 1"),
        ("isr", "t-0", "ISR 1,2 → 2"),
    ]
    assert changes(after, after) == []


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (shown_bytes(None), "–"), (shown_bytes(-1), "–"), (shown_bytes(0), "0 B"),
        (shown_bytes(1536), "1.5 KB"), (shown_bytes(5 * 2**30), "5 GB"),
        (shown_number(1234567), "1,234,567"), (shown_number(0.25), "0.2"),
        (shown_count(1, "topic"), "1 topic"), (shown_count(1234, "topic"), "1,234 topics"),
        (shown_moment(-1), "–"), (shown_moment(0), "1970-01-01 00:00:00.000"),
        (shown_moment(2**63 - 1), f"{2**63 - 1} ms"),
        (shown_age(59), "59 s"), (shown_age(90), "1 min 30 s"), (shown_age(90_000), "1 d 1 h"),
    ],
)  # fmt: skip
def test_numbers_are_short(shown: str, text: str) -> None:
    assert shown == text


def test_a_plots_names_are_never_markup() -> None:
    html = plot("<b>", {"<i>": [(0.0, 1.0), (1.0, 2.0)]}, "lag")
    assert "<b>&lt;" not in html
    assert "<i>" not in html
    assert "&lt;i&gt;: 2" in html
    assert "begins with the second sample" in plot("p", {"one": [(0.0, 1.0)]}, "lag")


@pytest.mark.parametrize(
    "text", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:x", ""]
)
def test_a_login_leads_to_no_other_site(text: str) -> None:
    assert _safe_next(text) == "/"
    assert _safe_next("/ui/topics?q=a") == "/ui/topics?q=a"
