"""How tests open logs, read their contents, and change their files without the logs' knowledge."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstore.env import SystemEnv
from kstore.log import Log, LogDir, open_log_dir
from kstore.log.queue import Queue


class ManualClock:
    """Time that only advances when the test moves it."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        """The same in seconds."""
        return self.now_ms() / 1000


def replicated_dir(path: Path, fs: Any = None, **settings: Any) -> LogDir:
    """A log dir whose logs are replicas: the test sets their high watermark."""
    found = open_log_dir(path, env=SystemEnv(fs=fs), **settings)
    found.replicated = True
    return found


def values(log: Log, start: int | None = None) -> list[bytes | None]:
    """All values that can be read, from an offset on."""
    return [record.value for record in log.records(start)]


def offsets(log: Log) -> list[int]:
    """The offsets of all records that can be read."""
    return [record.offset for record in log.records()]


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def drain(queue: Queue) -> list[bytes | None]:
    """Take and acknowledge what is there."""
    found: list[bytes | None] = []
    while messages := queue.get_many(7, 0):
        found += [message.value for message in messages]
        queue.ack(*messages)
    return found


def flip_bit(file: Path, position: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


def fill_segments(log: Log, which: range, *, in_epoch: int = 0) -> None:
    """Numbered one-record batches, ten in each segment; this many in each leader epoch."""
    for number in which:
        if number and number % 10 == 0:
            log.roll()
        epoch = {"leader_epoch": number // in_epoch} if in_epoch else {}
        log.append_many([b"value %03d" % number], **epoch)


def remove_index(folder: Path) -> None:
    """Delete the index of a log dir."""
    for file in folder.glob(".kstore*"):
        file.unlink()


def abandon(log_dir: LogDir) -> None:
    """Drop logs whose machine lost its power: none of their data may reach the disk any more."""
    for log in log_dir.open_logs():
        log.core.close()
    log_dir.maintenance.stop()
    log_dir.index.close()
    log_dir._give_lock_back()
    log_dir.state.closed = True


def in_a_child(work: Callable[[], object]) -> int:
    """How a forked process that does the work ends: 0, 1 if the work raised, or minus a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
