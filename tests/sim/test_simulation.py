"""Simulations with a fixed set of seeds and some new ones. The same seed gives the same run."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.sim.run import simulate
from tests.sim.running import SOME, Simulations, new_process, seeds_from
from tests.sim.running import run_simulations as run_simulations  # a fixture
from tests.sim.settings import Options


def assert_good(reports: list[dict[str, Any]], *arguments: str) -> None:
    """No rule was broken; the message says how to repeat the run."""
    for report in reports:
        again = f"python -m tests.sim --trace --seed {report['seed']} {' '.join(arguments)}"
        assert not report["violations"], f"{report['violations']}; again: {again}"
        assert report["counts"].get("acknowledged"), f"nothing happened; {again}"


@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 2), marks=pytest.mark.slow), SOME[1]]
)
def test_one_broker_with_every_fault(run_simulations: Simulations, seeds: range) -> None:
    assert_good(run_simulations(*seeds_from(0, seeds)))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SOME)
def test_what_a_synced_broker_has_acknowledged_survives_the_loss_of_power(
    run_simulations: Simulations, seeds: range
) -> None:
    power = ("--flush", "always", "--faults", "power,kill,restart,reset", "--seconds", "12")
    assert_good(run_simulations(*seeds_from(0, seeds), *power), *power)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SOME)
def test_three_brokers_with_every_fault(run_simulations: Simulations, seeds: range) -> None:
    cluster = ("--brokers", "3", "--seconds", "12")
    assert_good(run_simulations(*seeds_from(0, seeds), *cluster), *cluster)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_clean_election_loses_nothing_that_another_broker_has(
    run_simulations: Simulations,
) -> None:
    """KIP-966: a replica that has lost unsynced records waits for an eligible one."""
    unsynced = ("--brokers", "3", "--faults", "unsynced", "--flush", "os", "--seconds", "30")
    unsynced = (*unsynced, "--workloads", "produce")
    assert_good(run_simulations("--seed", "5", "--seeds", "4", *unsynced), *unsynced)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SOME)
def test_an_older_store_loses_no_acknowledged_records(
    run_simulations: Simulations, seeds: range
) -> None:
    """The coordination store is restored from a copy of before leaders moved."""
    restored = ("--brokers", "3", "--faults", "restored", "--seconds", "50")
    restored = (*restored, "--workloads", "produce")
    assert_good(run_simulations(*seeds_from(0, seeds), *restored), *restored)


@pytest.mark.thorough
@pytest.mark.slow
def test_an_older_store_undoes_changes_of_topics_and_mixes_up_none(
    run_simulations: Simulations,
) -> None:
    """Topics and partitions that were created after the copy are lost, and no topic that is created
    afterwards is taken for one of them.
    """
    restored = ("--brokers", "3", "--faults", "restored", "--seconds", "50")
    restored = (*restored, "--workloads", "produce,topics,expand,recreate")
    assert_good(run_simulations("--seed", "7042", "--seeds", "2", *restored), *restored)


def fresh_seed() -> int:
    """Another seed for every commit, so that a repeated run of a commit is the same; random outside
    a checkout.
    """
    command = ["git", "rev-parse", "HEAD"]
    here = Path(__file__).parent
    head = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False).stdout
    return 1000 + int(head[:7], 16) if head else random.randrange(1000, 1 << 28)


@pytest.mark.slow
def test_fresh_seeds(run_simulations: Simulations) -> None:
    seed = str(fresh_seed())
    cluster = ("--brokers", "3", "--seconds", "12")
    assert_good(run_simulations("--seed", seed, "--seeds", "2"))
    assert_good(run_simulations("--seed", seed, *cluster), *cluster)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "arguments"),
    [
        # In slow networks the copies took too long, and a member did not know the id of its topic.
        (304, "--faults session,store,isolate,kill --workloads produce,read,copy,group,topics"),
        (307, "--faults session,store,isolate,kill --workloads produce,read,copy,group,topics"),
        (309, "--faults session,store,isolate,kill --workloads produce,read,copy,group,topics"),
        # A broker that could not reach the store closed the controller's connection.
        (26, "--workloads produce,read,classic,streams,recreate"),
        # A member did not learn again what its coordinator had decided while it was away.
        (310002173, "--seconds 15"),
        # A copy went past its goal: the broker that gave the goal did not know the high watermark.
        (310005419, "--seconds 15"),
        # After another restart, a leader did not know that it had lost records that only it had.
        (102, "--faults alone --workloads produce,read"),
        # The last batch of a leader that lost its power had another leader epoch: its followers
        # copied that, and nothing else.
        (1795824096, "--seconds 15"),
    ],
)
def test_what_once_failed(run_simulations: Simulations, seed: int, arguments: str) -> None:
    given = ("--brokers", "3", "--seconds", "12", *arguments.split())
    assert_good(run_simulations("--seed", str(seed), *given), *given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [
        "copy", "group", "sharing", "churn",
        *(pytest.param(each, marks=pytest.mark.thorough)
          for each in ("topics", "classic", "streams", "expand")),
    ],
)  # fmt: skip
def test_each_workload_comes_to_something(run_simulations: Simulations, workload: str) -> None:
    counted = {
        "copy": "transactions committed",
        "group": "commits of owners",
        "classic": "commits of owners",
        "streams": "commits of owners",
        "topics": "topic changes",
        "expand": "expansions",
        "churn": "departures",
        "sharing": "acknowledgements",
    }
    given = ("--brokers", "3", "--seconds", "8", "--workloads", f"produce,{workload}")
    reports = run_simulations("--seed", "1", "--faults", "kill", *given)
    assert_good(reports, *given)
    assert all(report["counts"][counted.get(workload, "commits")] for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SOME)
def test_what_unclean_elections_lose_of_processed_records_is_told(
    run_simulations: Simulations, seeds: range
) -> None:
    given = ("--brokers", "3", "--seconds", "15", "--workloads", "lose", "--faults", "behind,kill")
    reports = run_simulations(*seeds_from(3, seeds), *given)
    assert_good(reports, *given)
    assert sum(report["counts"].get("losses of processed records", 0) for report in reports)


@pytest.mark.thorough
@pytest.mark.slow
def test_expansions_end_in_time_though_the_controller_does_not_reach_a_leader(
    run_simulations: Simulations,
) -> None:
    given = ("--brokers", "3", "--seconds", "30", "--workloads", "produce,expand", "--faults")
    reports = run_simulations("--seed", "1", "--seeds", "4", *given, "deaf")
    assert_good(reports, *given, "deaf")
    assert sum(report["counts"].get("refused while prepared", 0) for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SOME)
def test_given_offsets_hold_whatever_is_asked_again(
    run_simulations: Simulations, seeds: range
) -> None:
    given = ("--brokers", "3", "--seconds", "12", "--workloads", "give")
    reports = run_simulations(*seeds_from(1, seeds), *given)
    assert_good(reports, *given)
    assert all(report["counts"]["offsets given"] for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SOME)
def test_an_exact_copy_is_one_and_producers_go_on_there_after_the_switch(
    run_simulations: Simulations, seeds: range
) -> None:
    """The replicator and the brokers of both clusters crash at any moment."""
    given = ("--brokers", "3", "--seconds", "12", "--workloads", "mirror")
    reports = run_simulations(*seeds_from(1, seeds), *given)
    assert_good(reports, *given)
    for counted in ("batches copied", "transactions committed", "transactions of the copy"):
        assert all(report["counts"][counted] for report in reports)


MINUTES_OF_A_DAY = 24 * 60


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(("faults", "seeds"), [("none", 6), ("kill,reset,freeze,isolate", 3)])
def test_a_day_of_churn_refuses_no_commit_of_an_owner(
    run_simulations: Simulations, faults: str, seeds: int
) -> None:
    """Members leave and come back for each minute of a day, of half a day with faults. A refused
    commit of a member that has owned its partition all the time breaks the rule owners_commit.
    Brokers also count commits that were in flight when their member revoked. Without faults there
    are none of these either.
    """
    given = (
        "--brokers", "3", "--seconds", "100", "--workloads", "produce,churn", "--faults", faults,
    )  # fmt: skip
    reports = run_simulations("--seed", "1", "--seeds", str(seeds), *given)
    assert_good(reports, *given)
    counts = Counter[str]()
    for report in reports:
        counts.update(report["counts"])
    minutes = MINUTES_OF_A_DAY * seeds // 6
    assert counts["departures"] >= minutes
    assert counts["commits of owners"] >= minutes
    assert faults != "none" or counts["refused by brokers"] == 0


@pytest.mark.thorough
@pytest.mark.slow
def test_several_processes_do_what_one_does(run_simulations: Simulations) -> None:
    given = ("--seed", "3", "--seeds", "4", "--seconds", "4")
    alone = {report["seed"]: report["digest"] for report in run_simulations(*given)}
    shared = {each["seed"]: each["digest"] for each in run_simulations("--jobs", "2", *given)}
    assert shared == alone
    assert list(alone) == [3, 4, 5, 6]


@pytest.mark.slow
def test_a_seed_does_the_same_again(run_simulations: Simulations, tmp_path: Path) -> None:
    cluster = ("--brokers", "3", "--seconds", "5")
    first = run_simulations("--seed", "5", *cluster)
    with new_process(tmp_path / "stderr") as run_alone:
        again = run_alone("--seed", "5", *cluster)
    assert first[0]["trace"] == again[0]["trace"]
    assert first[0]["digest"] == again[0]["digest"]
    assert first[0]["digest"] != run_simulations("--seed", "6", *cluster)[0]["digest"]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_seed_does_after_others_what_it_does_alone(
    run_simulations: Simulations, tmp_path: Path
) -> None:
    """310002122 once did not: the order in which tasks ended depended on their memory addresses."""
    cluster = ("--brokers", "3", "--seconds", "8")
    reports = run_simulations("--seed", "310002120", "--seeds", "3", *cluster)
    for seed, report in zip(range(310002120, 310002123), reports, strict=True):
        with new_process(tmp_path / "stderr") as run_alone:
            [alone] = run_alone("--seed", str(seed), *cluster)
        assert report["trace"] == alone["trace"]
        assert report["digest"] == alone["digest"]


def test_help_shows_an_example() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--help"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "python -m tests.sim --seed 7" in shown.stdout


@pytest.mark.slow
def test_brokers_that_are_killed_leave_nothing_to_the_next_seed() -> None:
    """Their hooks in the garbage collector kept whole clusters alive: after 40 seeds, brokers took
    a second of CPU time to start.
    """
    before = list(gc.callbacks)
    options = Options(brokers=3, faults=("kill",), seconds=3.0, workloads=("produce",))
    report = simulate(1, options)
    assert report.violations == ()
    assert report.counts["fault kill"]
    assert gc.callbacks == before
