"""Reads of a log on the loop that do not wait for the disk. If data is not in memory, a thread
reads it first, and then the read continues.

A read is a generator that yields awaitables, so a read of data in memory needs no task. Fetch does
this in its own way (kstore/_fast/broker/fetch_answer.pyx).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from kstore._fast.disk.page_reader import ColdRead
from kstore._fast.log.slice_checks import locate_or_wait, read_or_wait

if TYPE_CHECKING:
    from kstore.log import Log
    from kstore.log.timestamps import Look

__all__ = ["Reading", "Slice", "finished", "locate", "read", "search_timestamp"]

T = TypeVar("T")
Reading = Generator[Awaitable[object], None, T]
"""A read: it yields awaitables, and returns the result."""
Slice = tuple[str, int, int, int, int]
"""Path, position and size, the first offset, and the one after the last."""
MOST_WAITS = 8
"""The limit of waits for one read. If the data is dropped from memory again each time, it is then
read directly.
"""


async def finished(reading: Reading[T]) -> T:
    """The result of a read."""
    while True:
        try:
            waits = next(reading)
        except StopIteration as done:
            result: T = done.value
            return result
        await waits


def read(log: Log, offset: int, end_offset: int, max_bytes: int) -> Reading[tuple[bytes, int]]:
    """As LogCore's `read`: the bytes of whole batches, and the offset to continue from."""
    cold: ColdRead | None = None
    for _ in range(MOST_WAITS):
        found = read_or_wait(log.core, offset, end_offset, max_bytes, cold)
        if not isinstance(found, ColdRead):
            return found
        cold = yield from _waited(found)
    return log.core.read(offset, end_offset, max_bytes)


def locate(log: Log, offset: int, end_offset: int) -> Reading[Slice | None]:
    """Where the batch with this offset is in its file, for a thread that reads it. The batch is in
    memory when this returns. None if there is no such batch, or if only this process can open its
    file.
    """
    cold: ColdRead | None = None
    for _ in range(MOST_WAITS):
        found = locate_or_wait(log.core, offset, end_offset, cold)
        if not isinstance(found, ColdRead):
            return found
        cold = yield from _waited(found)
    return None


def search_timestamp(
    log: Log, timestamp_ms: int, from_offset: int = 0
) -> Reading[tuple[int, int] | Look | None]:
    """As `Log.search_timestamp`."""
    from kstore.log.timestamps import Index  # rarely used, so not imported at the start

    steps = log.search_steps(timestamp_ms, from_offset)
    given: Any = None
    while True:
        try:
            step = steps.send(given)
        except StopIteration as done:
            found: tuple[int, int] | Look | None = done.value
            return found
        if not isinstance(step, Index):
            given = yield from read(log, *step)
            continue
        pages = log.local.directory.pages
        index = pages.aside(f"reading the index of {log.topic_partition}", step.find)
        if index is not None:
            yield index
        given = step.find() if index is None else index.result()


def _waited(cold: ColdRead) -> Reading[ColdRead]:
    yield _until_done(cold)
    if cold.problem is not None:
        raise cold.problem
    return cold


def _until_done(cold: ColdRead) -> asyncio.Future[None]:
    done = asyncio.get_running_loop().create_future()
    cold.when_done(lambda: None if done.done() else done.set_result(None))
    return done
