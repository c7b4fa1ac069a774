"""python -m tests.sim: run simulations by seed and tell what they found."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from tests.sim.faults import FAULTS

EXAMPLE = """example:
  python -m tests.sim --seed 7 --brokers 3 --faults kill,partition --trace
  python -m tests.sim --seeds 1000 --jobs 2       many seeds, until one fails
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
    parser.add_argument("--faults", default=",".join(FAULTS), help="kinds of faults, or none")
    parser.add_argument("--flush", default="", help="kstore.flush.policy (default: by the seed)")
    parser.add_argument("--workloads", default="produce,read,copy,group", help="what clients do")
    parser.add_argument("--mutation", default="", help="plant a bug (tests/sim/mutations.py)")
    parser.add_argument("--json", action="store_true", help="a JSON object per seed")
    parser.add_argument("--trace", action="store_true", help="tell what happened, line by line")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run; 1 if a seed failed."""
    options = parse(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings have another order in each process otherwise.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *arguments])
    from tests.sim.mutations import MUTATIONS
    from tests.sim.run import Options, simulate

    plant = MUTATIONS[options.mutation].plant if options.mutation else None

    kinds = tuple(k for k in options.faults.split(",") if k and k != "none")
    settings = Options(
        brokers=options.brokers,
        faults=kinds,
        seconds=options.seconds,
        flush=options.flush,
        workloads=tuple(options.workloads.split(",")),
    )
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        begun = time.monotonic()
        report = simulate(seed, settings, plant)
        took = time.monotonic() - begun
        if options.trace:
            print("\n".join(report.trace))
        if options.json:
            print(json.dumps(report._asdict() | {"took_s": round(took, 2)}))
        else:
            verdict = "FAILED" if report.violations else "ok"
            print(f"seed {seed}: {verdict} in {took:.1f} s, {report.digest}, {report.counts}")
            for violation in report.violations:
                print(f"  {violation}")
        failed += bool(report.violations)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
