"""Several processes that append to one embedded log, compared with SQLite and LMDB: records of 100
B, one at a time, not synced, by two and by four processes at once.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from bench.measure import Settings, in_turns
from bench.report import Goal, Row
from bench.stores import SqliteStore

__all__ = ["rows"]

VALUE = b"x" * 100
GOAL = Goal(3)
RUN_S = 1.0


def _kstore(folder: Path) -> Callable[[], object]:
    import kstore

    log = kstore.open_log(folder, shared=True)
    return lambda: log.append(VALUE)


def _sqlite(folder: Path) -> Callable[[], object]:
    store = SqliteStore(folder, synced=False)
    return lambda: store.append((VALUE,))


def _lmdb(folder: Path) -> Callable[[], object]:
    import lmdb

    env = lmdb.open(str(folder), map_size=8 << 30, sync=False, metasync=False)

    def append() -> None:
        with env.begin(write=True) as transaction:
            cursor = transaction.cursor()
            last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
            transaction.put((last + 1).to_bytes(8, "big"), VALUE, append=True)

    return append


OPENERS = {"kstore": _kstore, "SQLite WAL": _sqlite, "LMDB": _lmdb}


def _write(name: str, folder: Path, seconds: float, gate: Barrier, counts: Any) -> None:
    """A process: append for a while, and report the number."""
    append = OPENERS[name](folder)
    gate.wait()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(20):
            append()
        count += 20
    counts.put(count)


def _rate(name: str, folder: Path, processes: int, seconds: float) -> float:
    """The records per second of all processes together."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "SQLite WAL":
        SqliteStore(folder, synced=False).close()  # several processes cannot create it at once
    context = multiprocessing.get_context("spawn")
    gate, counts = context.Barrier(processes), context.Queue()
    writers = [
        context.Process(target=_write, args=(name, folder, seconds, gate, counts))
        for _ in range(processes)
    ]
    for writer in writers:
        writer.start()
    try:
        return sum(counts.get(timeout=30) for _ in writers) / seconds
    finally:
        for writer in writers:
            writer.join()
        shutil.rmtree(folder, ignore_errors=True)


def rows(settings: Settings) -> list[Row]:
    """A row for each number of processes."""
    made = []
    seconds = RUN_S if not settings.quick else RUN_S / 5
    for processes in (2, 4):

        def case(name: str, processes: int = processes) -> Callable[[], float]:
            return lambda: _rate(name, settings.scratch / "writers", processes, seconds)

        rates = in_turns({name: case(name) for name in OPENERS}, settings.pick(5, 1))
        made.append(
            Row("embedded", f"append 100 B, {processes} writing processes", rates["kstore"],
                "records/s", "SQLite WAL", rates["SQLite WAL"], GOAL,
                f"LMDB {rates['LMDB']:,.0f}")
        )  # fmt: skip
    return made
