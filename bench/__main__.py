"""Runs the named groups (or all), prints the table, and writes it with a plot."""

from __future__ import annotations

import argparse
import importlib
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import FrameType

from bench import compare, report
from bench.compare.run import run as run_compare
from bench.measure import Settings, progress

# Name, module with rows(settings), and what it measures.
GROUPS = {
    "embedded": "the embedded log, append and read: a raw file, SQLite, LMDB, RocksDB",
    "codec": "CRC, validation, building and decoding of batches: the clients' codecs",
    "micro": "one call of each operation of the embedded log, with pytest-benchmark",
    "rights": "the CPU time that an authorizer adds to a request",
    "wide": "requests of 1 MB: how long they hold the loop, how long others wait, memory",
    "opening": "finding an offset in a large index, and opening 10,000 partitions",
    "clients": "kstore's clients: confluent-kafka, kafka-python and aiokafka on the same broker",
    "scan": "kstore.scan in DuckDB and Polars: Parquet files of the same records",
    "pipeline": "the Spark source and sink: Spark's own Kafka connector on the same broker",
    "sink": "the Spark sink without Spark: its former design, in which bytes pass the driver",
    "compare": "the broker: Apache Kafka. You can name rows after it:",
}
RESULTS = Path(__file__).parent / "results"


def _arguments(command_line: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="GROUP",
        help=f"of {', '.join(GROUPS)}; after compare, rows of {', '.join(compare.ROWS)}",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes; only an indication")
    parser.add_argument("--list", action="store_true", help="list the groups and rows")
    parser.add_argument(
        "--case", action="append", default=[], metavar="WORDS",
        help="in compare, only cases whose names contain these words; repeatable",
    )  # fmt: skip
    parser.add_argument("--without-kafka", action="store_true", help="in compare, only kstore")
    parser.add_argument("--json", action="store_true", help="print results.json, not the table")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder for results")
    parser.add_argument(
        "--scratch", type=Path, default=None,
        help="a folder on the disk to measure; it is created if it does not exist",
    )  # fmt: skip
    return parser.parse_args(command_line)


def chosen(names: list[str]) -> tuple[list[str], list[str]]:
    """The requested groups and the requested rows of compare. A row implies compare; compare
    without rows means all of them. Raises ValueError for an unknown name.
    """
    unknown = [name for name in names if name not in GROUPS and name not in compare.ROWS]
    if unknown:
        known = ", ".join([*GROUPS, *compare.ROWS])
        raise ValueError(f"no group or row {unknown[0]!r}; there are {known}")
    rows = [name for name in names if name in compare.ROWS]
    groups = [name for name in GROUPS if not names or name in names or (rows and name == "compare")]
    return groups, rows or list(compare.ROWS)


def _run(name: str, settings: Settings, rows: list[report.Row]) -> list[str]:
    begin = time.monotonic()
    progress(f"{name}: {GROUPS[name]} ...")
    before = len(rows)
    try:
        for row in importlib.import_module(f"bench.{name}").rows(settings):
            rows.append(row)  # an interrupted group keeps the rows that it has
    except Exception:  # noqa: BLE001 (shown, and told by the exit code)
        traceback.print_exc()
        return [name]
    progress(f"{name}: {len(rows) - before} rows in {time.monotonic() - begin:.0f} s")
    return []


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(command_line: list[str] | None = None) -> int:
    """Run what was requested. Returns 1 if a group or row failed (its error is shown, the others
    still run), and 130 if it was interrupted. The results so far are always written.
    """
    arguments = _arguments(sys.argv[1:] if command_line is None else command_line)
    if arguments.list:
        print("\n".join(f"{name:14} {what}" for name, what in GROUPS.items()))
        print("\n".join(f"  {name:14} {kind.what}" for name, kind in compare.ROWS.items()))
        return 0
    try:
        groups, wanted = chosen(arguments.names)
        if arguments.scratch is not None:
            arguments.scratch.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        progress(str(error))
        return 2
    except OSError as error:
        progress(f"--scratch {arguments.scratch} can't be made: {error.strerror}")
        return 2
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, _terminated)  # even if a shell ignores it
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # 10,000 partitions have many files
    facts = report.machine()
    facts["sizes"] = "quick: an indication only" if arguments.quick else "full"
    rows: list[report.Row] = []
    failed: list[str] = []
    begin = time.monotonic()
    page = ""
    for name in groups:
        if "interrupted" in facts:
            break
        with tempfile.TemporaryDirectory(prefix="kstore-bench-", dir=arguments.scratch) as scratch:
            settings = Settings(
                quick=arguments.quick, scratch=Path(scratch), alone=arguments.without_kafka,
                cases=arguments.case,
            )  # fmt: skip
            try:
                if name == "compare":
                    failed += run_compare(wanted, settings, rows, facts)
                else:
                    failed += _run(name, settings, rows)
            except KeyboardInterrupt:
                facts["interrupted"] = "the run was ended before it was complete"
            # Now, because removing the scratch folder may take a while and be interrupted.
            facts["took"] = f"{time.monotonic() - begin:.0f} s"
            if failed:
                facts["failed"] = ", ".join(failed)
            page = report.write(rows, facts, arguments.results)
    print((arguments.results / "results.json").read_text() if arguments.json else page)
    progress(f"written to {arguments.results}/results.md, .json and .png")
    return 130 if "interrupted" in facts else int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
