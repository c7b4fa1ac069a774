"""What all coordinators share: which partition of their topic has the state of a name, and how a
log is read to load it. The coordinators know what the records mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from kstore._fast.record.murmur2 import string_hash
from kstore._fast.record.records import Record, decode
from kstore.broker.runtime.log_dirs.cold_reads import finished, read

if TYPE_CHECKING:
    from kstore.log import Log

__all__ = ["LARGE_BYTES", "TURN_SECONDS", "in_batches", "partition_of", "read_records"]

T = TypeVar("T")
LOAD_BYTES = 256 * 1024
TURN_SECONDS = 0.002
"""How long loading uses the loop before other work runs."""
RECORDS_PER_CLOCK_LOOK = 32
BATCH_BYTES = 256 * 1024
"""The size of batches of independent records. The topic refuses large batches."""
LARGE_BYTES = 1024
"""A larger record takes noticeable time: 10,000 partitions of a transaction take 3 ms."""


def partition_of(name: str, partitions: int) -> int:
    """The partition in which Kafka stores a group or a transactional id: Java's String.hashCode,
    made positive, modulo the number of partitions.
    """
    code = abs(string_hash(name))
    return 0 if code == 1 << 31 else code % partitions


def in_batches(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in lists of at most BATCH_BYTES, or of one item. ``size_of``: the bytes of one."""
    some: list[T] = []
    size = 0
    for item in items:
        size += size_of(item)
        if some and size > BATCH_BYTES:
            yield some
            some, size = [], size_of(item)
        some.append(item)
    if some:
        yield some


async def read_records(log: Log) -> AsyncIterator[Record]:
    """All records of a log, including control records, up to its current end. Other work on the
    loop runs in between.

    Raises LogError or ValueError if the log cannot be read.
    """
    clock = asyncio.get_running_loop().time
    turn_ends = clock() + TURN_SECONDS
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        # A leader applies the records that it finds or appends before its followers have them.
        data, _ = await finished(read(log, offset, log.log_end_offset, LOAD_BYTES))
        records = decode(data, start_offset=offset, control=True)
        for count, record in enumerate(records):
            yield record
            is_large = record.value is not None and len(record.value) > LARGE_BYTES
            if (is_large or count % RECORDS_PER_CLOCK_LOOK == 0) and clock() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock() + TURN_SECONDS
        if records.next_offset is None:
            return  # compaction left nothing after this
        offset = records.next_offset
