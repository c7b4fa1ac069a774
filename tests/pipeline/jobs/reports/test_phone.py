"""Reports on a phone, in a real browser: nothing is wider than the screen, and the text of plots is
not cut off.
"""

from __future__ import annotations

import pytest

from kstore.pipeline.jobs.reports.report import verification_page
from kstore.pipeline.jobs.reports.stats import KeyStats, Lag, PartitionStats, Stats
from kstore.pipeline.jobs.reports.stats_report import stats_page
from kstore.pipeline.jobs.verification.compare import Finding, Summary
from kstore.pipeline.jobs.verification.verify import Verification
from tests.console.chromium import chromium

pytestmark = pytest.mark.slow

WIDTH = 390
TOPIC = "payments.settlement.events.of.the.whole.group"
CUT_OFF = """[...document.querySelectorAll('svg text')].filter(text => {
  const its = text.getBoundingClientRect(), plot = text.closest('svg').getBoundingClientRect();
  return its.right > plot.right + 1 || its.left < plot.left - 1 || its.bottom > plot.bottom + 1
}).map(text => text.textContent)"""


def pages() -> dict[str, str]:
    """Both reports, with long names and large numbers."""
    stats = Stats(
        partitions=[
            PartitionStats(TOPIC, n, 0, 10**7, 10**7 * (n + 1), 47_100_000, 9 * 10**9)
            for n in range(12)
        ],
        distinct_keys={TOPIC: 10**6},
        keys=[KeyStats(TOPIC, b"customer/%d/" % n * 9, 10**7 // (n + 1), 500) for n in range(10)],
        sizes={TOPIC: {n: n * 10**6 for n in range(10, 60)}},
        times={TOPIC: {480_000 + n: n * 10**5 for n in range(100)}},
        lags=[Lag("a-group-with-a-long-name", TOPIC, n, 60, 9_000_000) for n in range(6)],
    )
    end = 9_000_000
    found = Verification(
        summaries=[
            Summary(TOPIC, n, 0, end, 0, end, 0, end, end, end - 1, findings=1) for n in range(12)
        ],
        findings=[Finding("missing", TOPIC, n, 3, 4, 1, "right", "x" * 90) for n in range(9)],
        blocks=[(TOPIC, n % 12, n // 12, 5, 5, True) for n in range(3000)],
        notes=["a note without a place to break: " + "x" * 200],
    )
    return {
        "stats": stats_page(stats, "cluster broker:9092"),
        "verify": verification_page(found, "cluster a:9092", "archive /data/archive"),
    }


def test_pages_fit_a_phone() -> None:
    with chromium() as browser:
        for name, text in pages().items():
            page = browser.new_page(viewport={"width": WIDTH, "height": 844})
            page.set_content(text)
            assert page.evaluate("document.documentElement.scrollWidth") == WIDTH, name
            assert page.evaluate("document.querySelectorAll('svg').length") > 0
            assert page.evaluate(CUT_OFF) == [], name
    assert "108.6 GB" in pages()["stats"]
