"""Pages of reports are complete and escaped, and stay small for any data."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest

from kstore.pipeline.jobs.reports import pages, plots
from kstore.pipeline.jobs.reports.report import verification_page
from kstore.pipeline.jobs.reports.stats import KeyStats, Lag, PartitionStats, Stats, bucket_size
from kstore.pipeline.jobs.reports.stats_report import show_key, stats_page, topic_rows
from kstore.pipeline.jobs.verification.compare import BAD, Finding, Summary
from kstore.pipeline.jobs.verification.verify import Verification


class Tags(HTMLParser):
    """Checks that elements are closed in the order in which they were opened."""

    VOID = frozenset({"meta", "!doctype"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One more."""
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """One less."""
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """None."""


@pytest.mark.slow
def test_a_verification_s_page_shows_findings_and_is_whole() -> None:
    found = Verification(
        summaries=[Summary("t<b>", 0, 0, 9, 0, 9, 0, 9, 9, 8, findings=1), Summary("u", 0)],
        findings=[Finding("missing", "t<b>", 0, 3, 4, 1, "right", "<script>")],
        blocks=[("t<b>", 0, n, 5, 5 * (n % 7 > 0), n % 7 > 0) for n in range(3000)],
        notes=["a & b"],
    )
    text = verification_page(found, "cluster <a>", "archive b")
    assert Tags(text).open == []
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "1 finding in 1 of 2 partitions." in text
    assert text.count("<i class") == pages.MAX_CELLS
    assert BAD["missing"] in text


def test_a_good_verification_says_so() -> None:
    text = verification_page(Verification(summaries=[Summary("t", 0)]), "a", "b")
    assert "No differences and no damage found." in text
    assert Tags(text).open == []


def test_numbers_are_written_for_people() -> None:
    assert [pages.number(v) for v in (None, True, 1234567, 0.5, "x", pages.Size(47_100_000))
    ] == ["–", "yes", "1,234,567", "0.50", "x", "47.1 MB",
    ]  # fmt: skip


def sample() -> Stats:
    """Two partitions of one topic."""
    return Stats(
        partitions=[
            PartitionStats("t", 0, 0, 90, 90, 90, 900, 3, 2, 1, 40),
            PartitionStats("t", 1, 0, 10, 10, 10, 100),
        ],
        distinct_keys={"t": 7},
        keys=[KeyStats("t", None, 60, 5), KeyStats("t", b"\xff<", 40, 5)],
        sizes={"t": {12: 50, 16: 49, 24: 1}},
        times={"t": {480_000: 5, 480_000 + 24 * 500: 95}},
        lags=[Lag("g", "t", 0, 60, 90), Lag("g", "t", 1, 10, 10)],
    )


def test_statistics_are_summed_by_topic() -> None:
    (row,) = topic_rows(sample())
    assert (row["records"], row["bytes"], row["keys"]) == (100, 1100, 7)
    assert (row["partition_skew"], row["top_key_share"], row["lag"]) == (1.8, 0.6, 30)
    assert row["p50_bytes"] == bucket_size(13)
    assert row["p99_bytes"] == bucket_size(17)
    assert sample().size_at("t", 1.0) == 40 < bucket_size(25)  # no record is larger


def texts(svg: str) -> list[str]:
    """The text of a plot."""
    return [unescape(text) for text in re.findall(r">([^<>]+)</text>", svg)]


def test_columns_name_the_first_the_middle_and_the_last() -> None:
    svg = plots.columns([(f"2026-11-22 {n:02}", 7) for n in range(100)], "records by hour")
    named = [text for text in texts(svg) if text.startswith("2026")]
    assert named == ["2026-11-22 00", "2026-11-22 49", "2026-11-22 99"]
    ends = [re.search(rf"text-anchor: (\w+)[^>]*>{name}<", svg) for name in (named[0], named[-1])]
    assert [end and end[1] for end in ends] == ["start", "end"]  # they stay inside the plot


def test_long_names_that_end_or_begin_alike_are_told_apart() -> None:
    names = [
        "payments.settlement.events.of.the.whole.group.v2." + x for x in ("retries", "letters")
    ]
    names.append("refunds." + names[0])
    shown = {texts(plots.bars([(name, [1])], ["records"]))[0] for name in names}
    assert len(shown) == 3
    assert max(map(len, shown)) <= plots.LONGEST_NAME


def test_bars_say_names_and_values_as_they_are(recwarn: pytest.WarningsRecorder) -> None:
    rows = [("<b> $x$ 日本", [1234567, 0]), ("u", [1, 2])]
    svg = plots.bars(rows, ["left", "right"])
    assert texts(svg) == ["<b> $x$ 日本", "1,234,567", "0", "u", "1", "2"]
    assert "left" in svg.split("<svg")[0]  # the legend
    assert not recwarn.list
    assert show_key(b"line\none\x00") == r"line\none\x00"


@pytest.mark.slow
def test_plots_take_colours_and_width_from_the_page() -> None:
    for svg in (plots.bars([("t", [1])], ["records"]), plots.columns([("a", 1)], "sizes")):
        assert set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg)) <= {
            "none", "var(--ink)", "var(--soft)", "var(--line)", "var(--one)",
        }  # fmt: skip
        opening = svg[: svg.index(">")]
        assert 'viewBox="0 0 360 ' in opening
        assert " width=" not in opening
        assert "<style" not in svg
    text = stats_page(sample(), "x")
    assert re.search(r"prefers-color-scheme: dark\) \{ :root \{[^}]*--one: #", text)
    assert "svg { display: block; width: 100%;" in text
    assert "http" not in text.replace("http://www.w3.org/", "")  # nothing is loaded from elsewhere


def test_the_page_of_statistics_is_whole() -> None:
    text = stats_page(sample(), "the cluster x")
    assert Tags(text).open == []
    assert "(no key)" in text
    assert "each bar is a week" in text
    assert "Lag of groups" in text
