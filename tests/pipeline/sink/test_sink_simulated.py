"""The sink in virtual time: brokers and drivers die at any moment, several drivers run at once, and
each version is written once. Also: the check notices a journal that accepts two plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstore.pipeline.sink.staging import Journal
from tests.pipeline.sink.simulated_sink import Sink
from tests.sim.run import SINKING, simulate
from tests.sim.running import SOME, Simulations, seeds_from
from tests.sim.running import run_simulations as run_simulations  # a fixture
from tests.sim.settings import Options

WORKLOADS = "produce", "sink"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SOME)
def test_each_version_is_written_once_whatever_dies(
    run_simulations: Simulations, seeds: range
) -> None:
    given = ("--brokers", "3", "--seconds", "12", "--workloads", ",".join(WORKLOADS))
    reports = run_simulations(*seeds_from(1, seeds), *given)
    for report in reports:
        again = f"python -m tests.sim --trace --seed {report['seed']} {' '.join(given)}"
        assert not report["violations"], f"{report['violations']}; again: {again}"
        assert report["counts"]["versions sunk"]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_second_plan_of_a_version_is_noticed() -> None:
    put = Journal.put

    async def put_anyway(self: Journal, offset: int, value: bytes) -> bool:
        await put(self, offset, value)
        return True

    def plant(replace: Callable[[Any, str, Any], None]) -> None:
        replace(Journal, "put", put_anyway)

    options = Options(brokers=3, seconds=12.0, workloads=WORKLOADS)
    reports = [simulate(seed, options, plant) for seed in (2, 9, 56)]  # of the first 70
    assert any("exactly_once" in each for report in reports for each in report.violations)


def test_the_simulation_finds_the_sink_by_its_module() -> None:
    assert Sink.__module__ == SINKING
