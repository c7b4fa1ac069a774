"""What all coordinators do alike with the partitions of their topics: which one keeps a name, and
how its log is read at the start. What the records mean is theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from kstore._fast.log.slice_checks import cold_read
from kstore._fast.record.murmur2 import string_hash
from kstore._fast.record.records import Record, decode

if TYPE_CHECKING:
    from kstore.log import Log

__all__ = ["TURN_SECONDS", "partition_of", "read_records"]

LOAD_BYTES = 256 * 1024
TURN_SECONDS = 0.002
"""How long loading keeps the loop before others have their turn."""
RECORDS_PER_CLOCK_LOOK = 32


def partition_of(name: str, partitions: int) -> int:
    """Where Kafka keeps a group or a transactional id: Java's String.hashCode, made positive,
    modulo the partitions.
    """
    code = abs(string_hash(name))
    return 0 if code == 1 << 31 else code % partitions


async def read_records(log: Log) -> AsyncIterator[Record]:
    """All records of a log, control records too, to the end that it has when they are read; others
    have their turn on the loop in between.

    LogError or ValueError for a log that can't be read.
    """
    clock = asyncio.get_running_loop().time
    turn_ends = clock() + TURN_SECONDS
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        await _in_memory(log, offset)
        # What a leader finds, or appends, counts before its followers have it.
        data, _ = log.core.read(offset, log.log_end_offset, LOAD_BYTES)
        records = decode(data, start_offset=offset, control=True)
        for count, record in enumerate(records):
            yield record
            if count % RECORDS_PER_CLOCK_LOOK == 0 and clock() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock() + TURN_SECONDS
        if records.next_offset is None:
            return  # compaction left nothing behind here
        offset = records.next_offset


async def _in_memory(log: Log, offset: int) -> None:
    """Wait until what is read next is in the page cache."""
    done = asyncio.get_running_loop().create_future()
    if cold_read(log.core, offset, LOAD_BYTES, partial(_settle, done)) is not None:
        await done


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
