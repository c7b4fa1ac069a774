"""Each checker finds the bug that was planted for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.history import RULES
from tests.sim.mutations import MUTATIONS
from tests.sim.running import Simulations
from tests.sim.running import run_simulations as run_simulations  # a fixture

SEEDS = 16
"""A planted bug shows in most seeds, but not in all: so many are tried."""
ALWAYS = {"defect", "lost-commits", "no-failover", "two-owners", "unsynced-is-seen"}
"""The bugs that are planted in every `make test`; `make test-all` plants the others."""
NAMES = [
    name if name in ALWAYS else pytest.param(name, marks=pytest.mark.thorough)
    for name in sorted(MUTATIONS)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_planted_bug_is_found(run_simulations: Simulations, name: str) -> None:
    mutation = MUTATIONS[name]
    reports = run_simulations(
        "--mutation", name, "--until", mutation.rule, "--seed", "1", "--seeds", str(SEEDS),
        *mutation.arguments.split(),
    )  # fmt: skip
    found = [line for report in reports for line in report["violations"]]
    assert any(line.startswith(mutation.rule + ":") for line in found), found


def test_every_rule_has_a_planted_bug() -> None:
    assert set(MUTATIONS) > ALWAYS
    assert {mutation.rule for mutation in MUTATIONS.values()} == set(RULES)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_what_a_planted_bug_replaces_is_there(name: str) -> None:
    replaced: list[str] = []

    def put(where: Any, attribute: str, bug: Any) -> None:
        assert hasattr(where, attribute), (where, attribute)
        replaced.append(attribute)

    MUTATIONS[name].plant(put)
    assert replaced
