"""python -m tests.soak: run a cluster for hours, and report growth and unexpected log lines."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.run import Report, soak

EXAMPLE = """example:
  python -m tests.soak --minutes 120
  python -m tests.soak --minutes 10 --fault-every 20 --json
"""


def main(arguments: list[str]) -> int:
    """Run; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Run three brokers under load with churn, kills and expansions; fail on growth"
        " of memory and descriptors, a wrong record, or a log line without an explanation.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=120, help="how long (default 120)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults")
    parser.add_argument("--fault-every", type=float, default=45, metavar="S", help="seconds")
    parser.add_argument("--folder", help="keep the brokers' data and logs here")
    parser.add_argument("--json", action="store_true", help="the report as a JSON object")
    options = parser.parse_args(arguments)
    print(f"soak of {options.minutes:g} minutes, seed {options.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as made:
        report = soak(
            Path(options.folder or made),
            options.minutes * 60,
            options.seed,
            lambda line: print(line, file=sys.stderr, flush=True),
            fault_every_s=options.fault_every,
        )
    if options.json:
        print(json.dumps(_facts(report)))
    else:
        _tell(report)
    return 1 if report.problems else 0


def _facts(report: Report) -> dict[str, object]:
    return {
        "seconds": report.seconds,
        "faults": report.faults,
        "records": report.records,
        "stalls": report.stalls,
        "rounds": report.rounds,
        "growth": {each.what: [each.before, each.after] for each in report.growth},
        "problems": report.problems,
    }


def _tell(report: Report) -> None:
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(report.faults.items()))
    print(f"{report.seconds:.0f} s, {report.records} records, faults: {faults}")
    for name, (done, put_off) in report.rounds.items():
        print(f"{name}: {done} rounds, {put_off} put off while a broker was away")
    for each in report.growth:
        print(f"the witness: {each}")
    for stall in report.stalls:
        print(f"the machine stood still for {stall:.0f} s")
    for problem in report.problems:
        print(f"FAILED  {problem}")
    if not report.problems:
        print("no growth, no unexplained line, no record wrong")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
