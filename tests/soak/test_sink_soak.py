"""The sink's soak, for less than a minute, and what its judge must notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.sink import SinkReport, judge, sink_soak


def rows(*numbers: int) -> list[bytes]:
    return [b"p-0-%d-xxx" % number for number in numbers]


def test_records_that_are_missing_or_doubled_are_told() -> None:
    report = SinkReport()
    judge(report, rows(0, 1, 2, 3), rows(0, 2, 2, 3), {})
    assert (report.records, report.missing, report.doubled) == (4, rows(1), rows(2))
    assert not report.is_good


def test_what_was_acknowledged_must_be_in_the_source() -> None:
    report = SinkReport()
    judge(report, rows(0, 1, 3), rows(0, 1, 3), {b"p-0": 3})
    assert report.problems == ["b'p-0-2' was acknowledged, and the source lacks it"]


def test_each_record_once_is_good() -> None:
    report = SinkReport()
    judge(report, rows(0, 1, 2), rows(2, 1, 0), {b"p-0": 1})
    assert report.is_good


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(1800)
def test_a_short_soak_passes(tmp_path: Path) -> None:
    told: list[str] = []
    report = sink_soak(tmp_path, 40, 1, told.append, kill_every_s=6)
    assert told
    assert report.killed.total() > 1
    assert report.acknowledged > 1000
    assert report.is_good, report
    for number in range(2):  # each worker has had an executor
        assert list((tmp_path / "spark" / f"worker-{number}").glob("app-*/*"))
