"""Looking up an offset in a log with a large index, and opening a directory of 10,000 partitions
lazily (no file is opened before it is used), compared with opening every segment file.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from bench.measure import Settings, in_turns
from bench.report import Row

__all__ = ["rows"]

LOOK_UPS = 2000


def _look_up(settings: Settings) -> list[Row]:
    import kstore

    folder = settings.scratch / "look-up"
    batches = settings.pick(20_000, 2_000)
    value = random.Random(4).randbytes(100)
    with kstore.open_log(folder, index_interval_bytes=256, segment_bytes=4 << 20) as log:
        for _ in range(batches):
            log.append_many([value] * 10)
        end = log.log_end_offset
    offsets = random.Random(6).choices(range(end), k=LOOK_UPS)
    with kstore.open_log(folder) as log:
        raw = log.read_batches(0, 1 << 20)
        if not raw:
            raise RuntimeError("the log that was written is empty")

        def read() -> float:
            begin = time.perf_counter()
            for offset in offsets:
                log.read_batches(offset, 1)
            return (time.perf_counter() - begin) / LOOK_UPS * 1e6

        def by_time() -> float:
            begin = time.perf_counter()
            for offset in offsets:
                log.offset_for_timestamp(1 + offset)
            return (time.perf_counter() - begin) / LOOK_UPS * 1e6

        found = in_turns({"read": read, "time": by_time}, settings.pick(5, 2))
    segments = len(list((folder / "log-0").glob("*.log")))
    note = f"{end:,} records in {segments} segments"
    return [
        Row("opening", "read one batch at a random offset", found["read"], "us", note=note),
        Row("opening", "look up a timestamp", found["time"], "us", note=note),
    ]


def _open_all(folder: Path) -> float:
    """The minimum that a store pays if it opens each file at its start."""
    begin = time.perf_counter()
    files = []
    for partition in os.scandir(folder):
        if partition.is_dir() and not partition.name.startswith("."):
            for segment in os.scandir(partition.path):
                files.append(os.open(segment.path, os.O_RDONLY))
                os.fstat(files[-1])
                if len(files) > 500:
                    for descriptor in files:
                        os.close(descriptor)
                    files.clear()
    elapsed = time.perf_counter() - begin
    for descriptor in files:
        os.close(descriptor)
    return elapsed


def _many_partitions(settings: Settings) -> list[Row]:
    import kstore

    partitions = settings.pick(10_000, 1_000)
    folder = settings.scratch / "many"
    with kstore.open_log_dir(folder) as logs:
        for index in range(partitions):
            logs.log(f"topic-{index // 100}", index % 100).append(b"x")

    def opened() -> float:
        begin = time.perf_counter()
        logs = kstore.open_log_dir(folder)
        found = len(logs.partitions())
        elapsed = time.perf_counter() - begin
        logs.close()
        if found != partitions:
            raise RuntimeError(f"{found} of {partitions} partitions after opening")
        return elapsed

    def first_use() -> float:
        logs = kstore.open_log_dir(folder)
        begin = time.perf_counter()
        for index in range(0, partitions, 10):
            logs.log(f"topic-{index // 100}", index % 100).read(0)
        elapsed = time.perf_counter() - begin
        logs.close()
        return elapsed / (partitions / 10) * 1e6

    cases = {"open": opened, "use": first_use, "files": lambda: _open_all(folder)}
    found = in_turns(cases, settings.pick(3, 1))
    return [
        Row("opening", f"open {partitions:,} partitions after a clean close", found["open"], "s",
            "open and stat of every file", found["files"]),
        Row("opening", "first read of a partition after opening", found["use"], "us"),
    ]  # fmt: skip


def rows(settings: Settings) -> list[Row]:
    """All rows of the group."""
    return [*_look_up(settings), *_many_partitions(settings)]
