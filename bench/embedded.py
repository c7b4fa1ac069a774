"""Appending to and reading from the embedded log, a raw file, SQLite, LMDB and RocksDB: records of
100 B and 1 KB in batches of 1, 100 and 1,000, not synced, with every batch synced, and with 32
threads that each wait until their own record is on disk.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import queues, writers
from bench.measure import Settings, in_turns, touch_memory
from bench.report import Goal, Row
from bench.stores import PEERS, KstoreBatches, KstoreInterval, KstoreLog, RawFile, Store

__all__ = ["rows"]

APPENDERS = 32
UNSYNCED_GOALS = {1: Goal(2), 100: Goal(6), 1000: Goal(6)}
RAW_GOAL = Goal(0.7)


def _batches(record_bytes: int, batch: int, count: int) -> list[list[bytes]]:
    """`count` batches. Few of them differ, so that ready-made bytes stay in the cache for all
    stores.
    """
    noise = random.Random(record_bytes)
    distinct = [[noise.randbytes(record_bytes) for _ in range(batch)] for _ in range(8)]
    return [distinct[index % len(distinct)] for index in range(count)]


def _append_rate(
    kind: type[Store], folder: Path, batches: Sequence[list[bytes]], *, synced: bool
) -> float:
    """Records per second, without the time to open and close."""
    shutil.rmtree(folder, ignore_errors=True)
    touch_memory(2 * len(batches) * sum(map(len, batches[0])) + (64 << 20), folder.parent)
    store = kind(folder, synced=synced)
    try:
        for values in batches[:8]:
            store.append(values)  # ready-made batches are made here
        begin = time.perf_counter()
        for values in batches:
            store.append(values)
        elapsed = time.perf_counter() - begin
    finally:
        store.close()
        shutil.rmtree(folder, ignore_errors=True)
    return len(batches) * len(batches[0]) / elapsed


def _concurrent_rate(kind: type[Store], folder: Path, each: int) -> float:
    """Records per second of 32 threads that append one synced record at a time."""
    shutil.rmtree(folder, ignore_errors=True)
    store = kind(folder, synced=True)
    value = [random.Random(5).randbytes(100)]
    failures: list[BaseException] = []
    gate = threading.Barrier(APPENDERS + 1)

    def append() -> None:
        gate.wait()
        try:
            for _ in range(each):
                store.append(value)
        except BaseException as error:  # noqa: BLE001 (raised below, in the caller's thread)
            failures.append(error)

    threads = [threading.Thread(target=append) for _ in range(APPENDERS)]
    for thread in threads:
        thread.start()
    try:
        gate.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - begin
    finally:
        store.close()
        shutil.rmtree(folder, ignore_errors=True)
    if failures:
        raise failures[0]
    return APPENDERS * each / elapsed


def _turns(
    kinds: Sequence[type[Store]], rate: Callable[[type[Store]], float], settings: Settings
) -> dict[str, float]:
    def case(kind: type[Store]) -> Callable[[], float]:
        return lambda: rate(kind)

    return in_turns({kind.name: case(kind) for kind in kinds}, settings.pick(5, 1))


def _best(rates: dict[str, float]) -> tuple[str, float]:
    return max(((kind.name, rates[kind.name]) for kind in PEERS), key=lambda pair: pair[1])


def _note(rates: dict[str, float]) -> str:
    return ", ".join(f"{kind.name} {rates[kind.name]:,.0f}" for kind in PEERS)


def _unsynced(settings: Settings) -> list[Row]:
    made = []
    for record_bytes in (100, 1024):
        for batch in (1, 100, 1000):
            total = {1: 20_000, 100: 200_000, 1000: 400_000}[batch] // (record_bytes // 100)
            count = max(8, total // batch // settings.pick(1, 8))
            batches = _batches(record_bytes, batch, count)
            kinds = [RawFile, KstoreLog, KstoreBatches, KstoreInterval, *PEERS]

            def rate(kind: type[Store], batches: Sequence[list[bytes]] = batches) -> float:
                return _append_rate(kind, settings.scratch / "store", batches, synced=False)

            rates = _turns(kinds, rate, settings)
            name = f"append {record_bytes} B x {batch}"
            best, best_rate = _best(rates)
            goal = UNSYNCED_GOALS[batch] if record_bytes == 100 else None
            raw_goal = RAW_GOAL if batch == 1000 else None
            ready, raw, ours = rates[KstoreBatches.name], rates[RawFile.name], rates["kstore"]
            timer = rates[KstoreInterval.name]
            unit = "records/s"
            made += [
                Row("embedded", f"{name}, not synced", ours, unit, best, best_rate, goal,
                    _note(rates)),
                Row("embedded", f"{name}, flush each second", timer, unit, best, best_rate),
                Row("embedded", f"{name}, values / raw bytes", ours, unit, "raw file", raw),
                Row("embedded", f"{name}, ready batches / raw bytes", ready, unit, "raw file", raw,
                    raw_goal),
            ]  # fmt: skip
    return made


def _synced(settings: Settings) -> list[Row]:
    made = []
    for record_bytes in (100, 1024):
        for batch in (1, 100, 1000):
            batches = _batches(record_bytes, batch, settings.pick(200, 40))

            def rate(kind: type[Store], batches: Sequence[list[bytes]] = batches) -> float:
                return _append_rate(kind, settings.scratch / "store", batches, synced=True)

            rates = _turns([RawFile, KstoreLog, *PEERS], rate, settings)
            name = f"append {record_bytes} B x {batch}, each batch synced"
            best, best_rate = _best(rates)
            note = f"{_note(rates)}, raw {rates[RawFile.name]:,.0f}"
            ours = rates["kstore"]
            made.append(Row("embedded", name, ours, "records/s", best, best_rate, Goal(1.0), note))
    each = settings.pick(60, 10)

    def concurrent(kind: type[Store]) -> float:
        return _concurrent_rate(kind, settings.scratch / "store", each)

    rates = _turns([KstoreLog, *PEERS], concurrent, settings)
    best, best_rate = _best(rates)
    made.append(
        Row("embedded", f"append 100 B, {APPENDERS} threads, each synced", rates["kstore"],
            "records/s", best, best_rate, Goal(5), _note(rates))
    )  # fmt: skip
    return made


def _read_rates(
    kinds: Sequence[type[Store]], batches: Sequence[list[bytes]], settings: Settings, unit: str
) -> dict[str, float]:
    folders = {kind.name: settings.scratch / f"read-{index}" for index, kind in enumerate(kinds)}
    stores = {kind.name: kind(folders[kind.name], synced=False) for kind in kinds}
    expected = len(batches) * len(batches[0])
    try:
        for store in stores.values():
            for values in batches:
                store.append(values)

        def rate(kind: type[Store]) -> float:
            begin = time.perf_counter()
            count, size = stores[kind.name].read_all()
            elapsed = time.perf_counter() - begin
            if unit == "records/s" and count != expected:
                raise RuntimeError(f"{kind.name} read {count} of {expected} records")
            return (count if unit == "records/s" else size / 1e6) / elapsed

        return _turns(kinds, rate, settings)
    finally:
        for store in stores.values():
            store.close()
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _reads(settings: Settings) -> list[Row]:
    made = []
    for record_bytes in (100, 1024):
        count = settings.pick(400_000, 40_000) // (record_bytes // 100) // 100
        batches = _batches(record_bytes, 100, count)
        rates = _read_rates([KstoreLog, *PEERS], batches, settings, "records/s")
        best, best_rate = _best(rates)
        name = f"read {record_bytes} B"
        made.append(
            Row("embedded", f"{name}, every value", rates["kstore"], "records/s", best, best_rate,
                None, _note(rates))
        )  # fmt: skip
        rates = _read_rates([RawFile, KstoreBatches], batches, settings, "MB/s")
        ours, raw = rates[KstoreBatches.name], rates[RawFile.name]
        made.append(Row("embedded", f"{name}, batches as stored", ours, "MB/s", "raw file", raw))
    return made


def rows(settings: Settings) -> list[Row]:
    """All rows of the group."""
    return [
        *_unsynced(settings),
        *_synced(settings),
        *_reads(settings),
        *queues.rows(settings),
        *writers.rows(settings),
    ]
