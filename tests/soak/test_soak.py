"""The soak itself, for half a minute, and what its judges must notice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak.log_lines import AFTER_A_STALL, EXPLAINED, unexplained
from tests.soak.run import soak
from tests.soak.samples import Sample, growth, sample, stalls


def run_of(anonymous_kb: list[int]) -> list[Sample]:
    return [Sample(float(at), kb, 50, 4) for at, kb in enumerate(anonymous_kb)]


def test_memory_that_grows_steadily_is_a_leak():
    memory, *others = growth(run_of([30_000 + 400 * n for n in range(40)]))
    assert memory.is_leak
    assert not any(each.is_leak for each in others)


def test_memory_that_is_taken_at_the_start_is_none():
    assert not any(g.is_leak for g in growth(run_of([30_000] * 9 + [60_000] * 31)))


def test_a_single_peak_is_none():
    assert not any(g.is_leak for g in growth(run_of([30_000] * 38 + [900_000, 30_000])))


def test_descriptors_that_stay_open_are_a_leak():
    samples = [Sample(float(n), 30_000, 50 + n, 4) for n in range(40)]
    assert [g.what for g in growth(samples) if g.is_leak] == ["descriptors"]


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="too few"):
        growth(run_of([1, 2, 3]))


def test_a_process_is_sampled_and_one_that_ended_is_told():
    mine = sample(os.getpid(), 1.0)
    assert mine.anonymous_kb > 1000
    assert mine.descriptors >= 3
    assert mine.threads >= 1
    with pytest.raises(ProcessLookupError):
        sample(2**22 + 1, 0.0)


def test_a_machine_that_stood_still_is_noticed_and_explains_ended_sessions():
    times = [10.1, 20.3, 115.0, 125.1]
    assert [round(s) for s in stalls([Sample(at, 1, 1, 1) for at in times], 10.0)] == [85]
    lines = [
        "2026-01-01 00:00:00,001 WARNING this process was stopped for 84.0 s, and its ses",
        "2026-01-01 00:00:00,002 WARNING broker 2 is registered again",
    ]
    assert len(unexplained(lines)) == 2
    assert not unexplained(lines, EXPLAINED + AFTER_A_STALL)


def test_lines_without_an_explanation_are_counted_with_their_tracebacks():
    lines = [
        "2026-01-01 00:00:00,001 INFO broker 2 is the controller, epoch 7",
        "2026-01-01 00:00:01,001 ERROR a bug in the controller",
        "Traceback (most recent call last):",
        "2026-01-01 00:00:02,001 ERROR a bug in the controller",
    ]
    assert unexplained(lines) == {
        "ERROR a bug in the controller": 2,
        "ERROR a bug in the controller | Traceback (most recent call last):": 1,
    }


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_soak_passes(tmp_path: Path):
    told: list[str] = []
    report = soak(
        tmp_path, 30, 1, told.append, fault_every_s=8, churn_pause_s=0.5, expand_every_s=3
    )
    assert told
    assert report.records > 1000
    assert not report.lines
    assert not report.wrong
