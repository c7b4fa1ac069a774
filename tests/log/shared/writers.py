"""Processes that write to one shared log until they are killed, and their reports of what they
appended. Each is forked, and reports every acknowledgement through a pipe before it does anything
else.
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import kstore
from kstore.log import Log

ROW = struct.Struct("<qqqq")
VALUE = struct.Struct(">qqqq")
"""Who wrote it, which of its batches it is in, which record of it, and of how many."""


def batch(writer: int, number: int, count: int) -> list[bytes]:
    """The records of one append."""
    return [VALUE.pack(writer, number, at, count) + b"." * (number % 50) for at in range(count)]


@dataclass
class Writer:
    """A process and the end of its pipe."""

    number: int
    pid: int
    reader: int
    acknowledged: list[tuple[int, int, int, int]]
    failure: str = ""

    def has_reported(self) -> None:
        """Wait until it has reported something, be it a failure."""
        select.select([self.reader], [], [])

    def kill(self, kind: int = signal.SIGKILL) -> None:
        """kill -9, and read its reports."""
        os.kill(self.pid, kind)
        os.waitpid(self.pid, 0)
        data = b""
        while part := os.read(self.reader, 1 << 16):
            data += part
        os.close(self.reader)
        text, mark, failure = data.partition(b"Traceback")
        self.failure = (mark + failure).decode()
        whole = len(text) - len(text) % ROW.size if not mark else 0
        self.acknowledged = list(ROW.iter_unpack(text[:whole]))


Say = Callable[[int, int, int], None]
"""Tell the parent three numbers, which mean what the work says; returns when they are out."""


def begin(number: int, work: Callable[[Say], None]) -> Writer:
    """Start a writer; returns when it has opened its log. ``work(say)`` runs until it is killed;
    ``say(batch, first offset, records)`` reports an append.
    """
    reader, pipe = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            work(lambda *row: _say(pipe, number, row))
        except BaseException:  # noqa: BLE001 (the parent shows it)
            os.write(pipe, traceback.format_exc().encode())
        time.sleep(600)
        os._exit(1)
    os.close(pipe)
    return Writer(number, pid, reader, [])


def killed_run(
    work: Callable[[Say], None], chance: random.Random, *, most_ms: int = 18
) -> list[tuple[int, ...]]:
    """The reports of ``work`` before it was killed, some milliseconds after its first report.
    AssertionError, with the child's traceback, if it failed by itself.
    """
    writer = begin(0, work)
    try:
        writer.has_reported()
        time.sleep(chance.uniform(2, most_ms) / 1000)
    finally:
        writer.kill()
    assert not writer.failure, writer.failure
    return [row[1:] for row in writer.acknowledged]


def _say(pipe: int, number: int, row: tuple[int, ...]) -> None:
    os.write(pipe, ROW.pack(number, *row))


def appending(path: str, number: int, **settings: object) -> Callable[[Say], None]:
    """Work: append batches of one to five records."""

    def work(say: Say) -> None:
        log = kstore.open_log(path, shared=True, **settings)
        for at in range(1 << 40):
            count = at % 5 + 1
            records = batch(number, at, count)
            offset = log.append(records[0]) if count == 1 else log.append_many(records).base_offset
            say(at, offset, count)

    return work


def contents(log: Log, start: int = 0) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """(offset, what the value says) of everything from an offset on."""
    for record in log.records(start):
        yield record.offset, VALUE.unpack(record.value[: VALUE.size])


def check(log: Log, start: int, writers: list[Writer]) -> int:
    """Acknowledged records are there, once, each append complete and in one piece; offsets are
    dense. Returns the end of the log.
    """
    found = dict(contents(log, start))
    end = log.log_end_offset
    assert sorted(found) == list(range(start, end))
    assert len(set(found.values())) == len(found)
    offset = start
    lasts: dict[int, int] = {}
    while offset < end:
        who, number, at, count = found[offset]
        assert at == 0
        assert [found[offset + k] for k in range(count)] == [
            (who, number, k, count) for k in range(count)
        ]
        assert number == lasts.get(who, -1) + 1 or who not in lasts
        lasts[who] = number
        offset += count
    for writer in writers:
        assert not writer.failure, writer.failure
        for who, number, first, count in writer.acknowledged:
            if first >= start:
                assert found[first] == (who, number, 0, count)
    return end
