"""The one command: runs the groups named (or all), prints the table and writes it with a plot."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench import report
from bench.measure import Settings

# Name, module with rows(settings), what it measures.
GROUPS = {
    "embedded": "append and read of the embedded log: raw limit, SQLite, LMDB, RocksDB",
    "codec": "CRC, validation and decoding: the clients' decoders",
    "micro": "one call of each of the embedded log's verbs, by pytest-benchmark",
    "opening": "index look-up, and opening 10,000 partitions",
    "startup": "start-up time and memory of the broker: Kafka",
    "request_cost": "broker CPU per small produce and fetch: Kafka",
    "restart": "restart after kill -9 with a full log: Kafka",
    "throughput": "broker CPU per GB under Java's perf tools: Kafka",
}
RESULTS = Path(__file__).parent / "results"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: an indication only")
    parser.add_argument("--list", action="store_true", help="list the groups")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where to write")
    parser.add_argument(
        "--scratch", type=Path, default=None, help="a folder on the disk to measure"
    )
    return parser.parse_args()


def _run(name: str, settings: Settings) -> list[report.Row]:
    begin = time.monotonic()
    print(f"{name}: {GROUPS[name]} ...", file=sys.stderr, flush=True)
    rows: list[report.Row] = importlib.import_module(f"bench.{name}").rows(settings)
    print(f"{name}: {len(rows)} rows in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return rows


def main() -> int:
    """Runs what was asked for; 1 when a group failed (its error is shown, the others still run)."""
    asked = _arguments()
    if asked.list:
        print("\n".join(f"{name:14} {what}" for name, what in GROUPS.items()))
        return 0
    unknown = [name for name in asked.groups if name not in GROUPS]
    if unknown:
        print(f"no group {unknown[0]!r}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    facts = report.machine()
    rows: list[report.Row] = []
    failed = []
    for name in asked.groups or GROUPS:
        with tempfile.TemporaryDirectory(prefix="kstore-bench-", dir=asked.scratch) as scratch:
            try:
                rows += _run(name, Settings(quick=asked.quick, scratch=Path(scratch)))
            except Exception:  # noqa: BLE001 (shown, and told by the exit code)
                traceback.print_exc()
                failed.append(name)
    facts["sizes"] = "quick" if asked.quick else "full"
    if failed:
        facts["failed groups"] = ", ".join(failed)
    print(report.write(rows, facts, asked.results))
    print(f"written to {asked.results}/results.md, .json and .png", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
