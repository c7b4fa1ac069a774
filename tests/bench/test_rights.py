"""bench/rights.py: it sends its requests through the harness of the broker's tests, which no type
checker compares with it.
"""

from __future__ import annotations

from pathlib import Path

from bench.measure import Settings
from bench.rights import rows


def test_each_request_is_answered_with_and_without_an_authorizer(tmp_path: Path) -> None:
    found = rows(Settings(quick=True, scratch=tmp_path))
    assert [row.case for row in found] == [
        "Fetch, nothing new", "Metadata, kept answer", "Produce, one record of 100 B",
    ]  # fmt: skip
