"""Pages of reports: whole, escaped, and small whatever there is to show."""

from __future__ import annotations

from html.parser import HTMLParser

from kstore.pipeline.jobs.reports import pages
from kstore.pipeline.jobs.reports.report import verification_page
from kstore.pipeline.jobs.reports.stats import KeyStats, Lag, PartitionStats, Stats, bucket_size
from kstore.pipeline.jobs.reports.stats_report import stats_page, topic_rows
from kstore.pipeline.jobs.verification.compare import BAD, Finding, Summary
from kstore.pipeline.jobs.verification.verify import Verification


class Tags(HTMLParser):
    """Checks that what is opened is closed, in order."""

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
    assert "1 findings in 1 of 2 partitions." in text
    assert text.count("<rect") < 400
    assert BAD["missing"] in text


def test_a_good_verification_says_so() -> None:
    text = verification_page(Verification(summaries=[Summary("t", 0)]), "a", "b")
    assert "Nothing was found that must not be." in text
    assert Tags(text).open == []


def test_numbers_are_written_for_people() -> None:
    assert [pages.number(v) for v in (None, True, 1234567, 0.5, "x")] == [
        "–", "yes", "1,234,567", "0.50", "x",
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


def test_names_at_the_edge_of_a_plot_stay_in_it() -> None:
    svg = pages.columns([(f"2026-11-22 {n:02}", 7) for n in range(100)], "records by hour")
    assert svg.count(">7</text>") == 1
    assert 'x="0" y="168" class="soft" text-anchor="start">2026-11-22 00<' in svg
    assert 'x="900" y="168" class="soft" text-anchor="end">2026-11-22 96<' in svg
    assert 'text-anchor="middle">2026-11-22 48<' in svg


def test_long_names_that_end_or_begin_alike_are_told_apart() -> None:
    names = ["payments.settlement.events.v2." + last for last in ("retries", "deadletter")]
    names.append("refunds." + names[0])
    shown = {pages.bars([(name, [1])], ["records"]).split("</title>")[1] for name in names}
    assert len(shown) == 3


def test_the_page_of_statistics_is_whole() -> None:
    text = stats_page(sample(), "the cluster x")
    assert Tags(text).open == []
    assert "(no key)" in text
    assert "each bar is a week" in text
    assert "Lag of groups" in text
