"""bench/compare/scale: which clusters are measured, and a short run against two brokers."""

from __future__ import annotations

import pytest

from bench.compare import scale
from bench.compare.pair import Pair
from bench.measure import Settings


def test_brokers_double_up_to_one_for_each_core():
    assert scale.broker_counts(1) == [1]
    assert scale.broker_counts(2) == [1, 2]
    assert scale.broker_counts(6) == [1, 2, 4, 6]
    assert scale.broker_counts(8) == [1, 2, 4, 8]


@pytest.mark.thorough
@pytest.mark.slow
def test_each_number_of_brokers_has_its_rate_its_cpu_and_the_generators_share(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(scale, "usable_cores", lambda: 2)
    settings = Settings(quick=True, scratch=tmp_path, alone=True)
    with Pair(tmp_path / "pair", settings) as pair:
        found = list(scale.rows(pair, settings))
    assert len({row.case for row in found}) == 8  # both APIs, depths and numbers of brokers
    for row in found:
        assert row.state == "", row.case
        assert row.value is not None
        assert row.value > 0
    notes = {row.case: row.note for row in found if row.note}
    assert all("of the CPU used" in note for note in notes.values())
    for case, note in notes.items():
        assert ("times one broker's" in note) == ("2 brokers" in case)
