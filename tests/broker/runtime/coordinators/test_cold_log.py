"""A coordinator's log that is not in memory is read in by a thread before the loop reads it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kstore._fast.disk.page_cache import is_resident
from kstore.broker.runtime.coordinators.partitions import LARGE_BYTES, read_records
from kstore.log import Log, open_log_dir

pytestmark = pytest.mark.on_disk

RECORDS = 64


def test_a_cold_log_is_read_whole_and_the_loop_waits_for_no_disk(tmp_path: Path) -> None:
    with open_log_dir(tmp_path) as first:
        for number in range(50):
            first.log("t").append(b"%d" % number + b"x" * 20_000)
    log_dir = open_log_dir(tmp_path)
    log = log_dir.log("t")
    descriptor = os.open(log.segments[-1].path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    dropped = is_resident(descriptor, 0, os.fstat(descriptor).st_size) is False
    os.close(descriptor)

    async def load() -> list[bytes]:
        loop = asyncio.get_running_loop()
        log_dir.pages.serve(loop.add_reader, loop.remove_reader)
        found = [record.value async for record in read_records(log)]
        log_dir.pages.end()
        return found

    found = asyncio.run(load())
    reads = log_dir.pages.cold_reads
    log_dir.close()
    assert found == [b"%d" % number + b"x" * 20_000 for number in range(50)]
    if not dropped:
        pytest.skip("this system does not say what is in the page cache, or drops nothing")
    assert reads > 0


def test_large_records_are_each_looked_at_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kstore.broker.runtime.coordinators.partitions.TURN_SECONDS", 0)
    turns = 0

    async def load(log: Log) -> None:
        nonlocal turns
        loop = asyncio.get_running_loop()

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop.call_soon(turn)
        assert len([record async for record in read_records(log)]) == RECORDS

    for size, least, most in ((LARGE_BYTES + 1, RECORDS, 2 * RECORDS), (10, 1, RECORDS // 4)):
        with open_log_dir(tmp_path / str(size)) as log_dir:
            for _ in range(RECORDS):
                log_dir.log("t").append(b"x" * size)
            turns = 0
            asyncio.run(load(log_dir.log("t")))
        assert least <= turns <= most
