"""python -m tests.sim: run simulations by seed and report what they found."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.faults import FAULTS, USUAL
from tests.sim.progress import Progress

if TYPE_CHECKING:
    from tests.sim.run import Report

SEEDS_OF_A_PROCESS = 50
MOST_TOLD = 100
"""With more seeds than this, only the failing ones are printed, and the progress."""
EXAMPLE = """example:
  python -m tests.sim --seed 7 --brokers 3 --faults kill,partition --trace
  python -m tests.sim --seeds 1000 --jobs 2       many seeds
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim",
        description="Run whole brokers and their clients under virtual time, with faults.",
        epilog=EXAMPLE
        + "\nfaults:\n"
        + "\n".join(f"  {name:12} {fault.explanation}" for name, fault in FAULTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--brokers", type=int, default=1, help="brokers of the cluster")
    parser.add_argument("--seconds", type=float, default=20.0, help="virtual time with faults")
    parser.add_argument("--faults", default=",".join(USUAL), help="kinds of faults, or none")
    parser.add_argument("--flush", default="", help="kstore.flush.policy (default: by the seed)")
    parser.add_argument(
        "--workloads",
        default="",
        help="what clients do: produce, read, copy, group, topics, classic, streams, expand, "
        "recreate, share, sharing (default: the first two, and three others by the seed); on "
        "request only: lose, churn, give",
    )
    parser.add_argument("--mutation", default="", help="plant a bug (tests/sim/mutations.py)")
    parser.add_argument("--until", default="", help="stop as soon as a seed breaks this rule")
    parser.add_argument("--minutes", type=float, default=0, help="begin no seed after so long")
    parser.add_argument("--summary", default="", help="a JSON file that tells how far the run is")
    parser.add_argument("--resume", action="store_true", help="go on with the run of that file")
    parser.add_argument("--json", action="store_true", help="a JSON object per seed")
    parser.add_argument("--trace", action="store_true", help="tell what happened, line by line")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run; returns 1 if a seed failed."""
    options = parse(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Otherwise sets of strings have another order in each process.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *arguments])
    from tests.sim.mutations import MUTATIONS
    from tests.sim.settings import Options

    plant = MUTATIONS[options.mutation].plant if options.mutation else None

    kinds = tuple(k for k in options.faults.split(",") if k and k != "none")
    settings = Options(
        brokers=options.brokers,
        faults=kinds,
        seconds=options.seconds,
        flush=options.flush,
        workloads=tuple(options.workloads.split(",")) if options.workloads else (),
        until=options.until,
    )
    seeds = range(options.seed, options.seed + options.seeds)
    command = " ".join(["python -m tests.sim", *_without_seeds(arguments)])
    progress = Progress(options.summary, seeds, command, resume=options.resume)
    ends = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    for report in _reports(progress.left, settings, plant, options.jobs):
        progress.note(report)
        if options.trace:
            print("\n".join(report.trace))
        if options.json:
            print(json.dumps(report._asdict()), flush=True)
        elif report.violations or options.seeds <= MOST_TOLD:
            _tell(report, command)
        elif len(progress.left) % MOST_TOLD == 0:
            print(progress.sentence(), flush=True)
        if options.until and any(v.startswith(options.until) for v in report.violations):
            break
        if time.monotonic() > ends:
            break
    progress.write()
    if options.seeds > 1 and not options.json:
        print(progress.sentence())
    return 1 if progress.failed else 0


def _without_seeds(arguments: list[str]) -> list[str]:
    """The arguments that describe a simulation."""
    parser = argparse.ArgumentParser()
    for name in ("--seed", "--seeds", "--jobs", "--summary", "--minutes", "--until"):
        parser.add_argument(name)
    for name in ("--json", "--trace", "--resume"):
        parser.add_argument(name, action="store_true")
    return parser.parse_known_args(arguments)[1]


def _reports(seeds: list[int], settings: Any, plant: Any, jobs: int) -> Iterator[Any]:
    """A report for each seed, in the order in which they end."""
    from tests.sim.run import simulate

    if jobs <= 1:
        for seed in seeds:
            yield simulate(seed, settings, plant)
        return
    yield from each_in_processes(partial(simulate, options=settings, plant=plant), seeds, jobs)


def each_in_processes(
    run: Callable[[int], Report], seeds: Iterable[int], jobs: int
) -> Iterator[Report]:
    """The results of ``run`` for each seed, in ``jobs`` processes. A seed whose process dies has
    failed. The seeds that ran in other processes at that time are run again, each in its own
    process.
    """
    left = list(seeds)
    while left:
        # Processes end after some seeds, so that leftovers of a seed affect few others.
        now, left = left[: jobs * SEEDS_OF_A_PROCESS], left[jobs * SEEDS_OF_A_PROCESS :]
        pool = _processes(jobs)
        futures = {pool.submit(run, seed): seed for seed in now}
        try:
            for future in as_completed(futures):
                yield future.result()
                now.remove(futures[future])
        except BrokenProcessPool:
            given_out = 2 * jobs + 1  # sent to processes, or to their queue
            for seed in now[:given_out]:
                yield _alone(run, seed)
            left = now[given_out:] + left
        finally:
            pool.shutdown(cancel_futures=True)


def _alone(run: Callable[[int], Report], seed: int) -> Report:
    from tests.sim.run import Report

    with _processes(1) as pool:
        try:
            return pool.submit(run, seed).result()
        except BrokenProcessPool:
            return Report(seed, ("crash: the process of the simulation died",), (), "", {})


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _tell(report: Any, command: str) -> None:
    verdict = "FAILED" if report.violations else "ok"
    counts = ", ".join(f"{name} {count}" for name, count in sorted(report.counts.items()))
    print(f"seed {report.seed}: {verdict}, {report.digest}, {counts}", flush=True)
    for violation in report.violations:
        print(f"  {violation}", flush=True)
    if report.violations:
        print(f"  again: {command} --seed {report.seed} --trace", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
