"""If a coordinator's log is not in memory, a thread reads it before the loop does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.disk.page_cache import is_resident
from kstore.broker.runtime.coordinators.partitions import LARGE_BYTES, read_records
from kstore.broker.runtime.log_dirs.cold_reads import finished, locate
from kstore.log import Log, open_log_dir
from tests.fast.disk.dropped_pages import forget

pytestmark = pytest.mark.on_disk

RECORDS = 64


def read_cold(folder: Path, reading: Callable[[Log], Awaitable[Any]]) -> tuple[Any, Any, int]:
    """Two reads of a log that is not in memory, and the number of reads by threads."""
    with open_log_dir(folder) as first:
        for number in range(50):
            first.log("t").append(b"%d" % number + b"x" * 20_000)
    log_dir = open_log_dir(folder)
    log = log_dir.log("t")
    with open(log.segments[-1].path, "r+b") as file:
        dropped = forget(file.fileno())

    async def load() -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        log_dir.pages.serve(loop.add_reader, loop.remove_reader)
        found = await reading(log)
        log_dir.pages.end()
        return found, await reading(log)

    found, again = asyncio.run(load())
    reads = log_dir.pages.cold_reads
    log_dir.close()
    if not dropped:
        assert found == again
        pytest.skip("this system does not say what is in the page cache, or drops nothing")
    return found, again, reads


def test_a_cold_log_is_read_whole_and_the_loop_waits_for_no_disk(tmp_path: Path) -> None:
    async def values(log: Log) -> list[bytes]:
        return [record.value async for record in read_records(log)]

    found, _, reads = read_cold(tmp_path, values)
    assert found == [b"%d" % number + b"x" * 20_000 for number in range(50)]
    assert reads > 0


def test_a_cold_batch_is_in_memory_when_it_was_located(tmp_path: Path) -> None:
    async def place(log: Log) -> tuple[Any, bool | None]:
        found = await finished(locate(log, 30, log.log_end_offset))
        assert found is not None
        path, position, size, *offsets = found
        assert offsets == [30, 31]
        descriptor = os.open(path, os.O_RDONLY)
        there = is_resident(descriptor, position, size)
        os.close(descriptor)
        return found, there

    found, again, reads = read_cold(tmp_path, place)
    assert found == again
    assert found[1] is not False
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
