"""A model of a compacted log, and a file system that counts the steps of a swap, and fails or kills
the process at one of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kstore
from kstore.env import SystemEnv
from kstore.log import Log
from tests.log.handling import remove_index
from tests.reference.fault_fs import FaultyFileSystem

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact,delete", "segment_bytes": 400, "index_interval_bytes": 100,
    "delete_retention_ms": 0, "retention_bytes": -1, "retention_ms": -1,
}  # fmt: skip
NOW = 10_000_000
LATER = NOW + 1_000_000
CALLS = ("replace", "unlink", "fsync_dir", "index")
"""The file system calls of a swap."""


class Model:
    """The records that reads may return: one for each offset, and the last one of each key."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.records: dict[int, tuple[bytes, bytes | None]] = {}

    def copy(self) -> Model:
        other = Model()
        other.start, other.end = self.start, self.end
        other.records = dict(self.records)
        return other

    def append(self, log: Log, key: bytes, value: bytes | None) -> None:
        """Append to the log and to the model."""
        assert log.append(value, key, timestamp=NOW) == self.end
        self.records[self.end] = (key, value)
        self.end += 1

    def truncate(self, log: Log, offset: int) -> None:
        """Remove records from an offset on; readable records before it stay."""
        with log.local.swapping:
            before = readable(log)
        end = log.truncate(offset)
        self.records = readable(log)
        assert self.records == {at: row for at, row in before.items() if at < end}
        self.end = end

    def delete_before(self, start: int) -> None:
        """Remove records below an offset."""
        self.records = {at: row for at, row in self.records.items() if at >= start}
        self.start = start

    def check(self, log: Log) -> None:
        """Check that a log has the required records, and no others than allowed."""
        found: dict[bytes, tuple[int, bytes | None]] = {}
        before = -1
        for record in log.records():
            assert record.key is not None
            assert before < record.offset
            assert self.start <= record.offset < self.end
            assert self.records[record.offset] == (record.key, record.value), record.offset
            found[record.key] = (record.offset, record.value)
            before = record.offset
        last = {key: (at, value) for at, (key, value) in sorted(self.records.items())}
        for key, row in last.items():
            if row[1] is None:
                assert found.get(key, row) == row, key
            else:
                assert found.get(key) == row, key
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)

    def check_folder(self, path: Path, *, without_index: bool) -> None:
        """Open the log and check it, and that no files of swaps are left."""
        if without_index:
            remove_index(path)
        else:  # have its folder looked at
            (path / "log-0" / "other").touch()
            (path / "log-0" / "other").unlink()
        for _ in range(2):
            with kstore.open_log(path, **SETTINGS) as log:
                assert log.recovery.damages == []
                assert log.recovery.losses == []
                self.check(log)
                assert leftovers(path) == []
                log.compact(LATER + 10)
                log.compact(LATER + 20)
                self.check(log)


def compacted_once(path: Path) -> Model:
    """Create a closed log that was compacted once: small segments, which the next compaction joins,
    with tombstones that it removes.
    """
    model = Model()
    with kstore.open_log(path, **SETTINGS) as log:
        for number in range(26):
            key = b"u%d" % number if number % 3 == 0 else b"k%d" % (number % 5)
            model.append(log, key, b"value %d" % number)
        for key in (b"k3", b"k4"):
            model.append(log, key, None)
        log.compact(NOW)
        for number in range(12):
            model.append(log, b"k%d" % (number % 3), b"second %d" % number)
        for key in (b"u0", b"u9", b"k0"):
            model.append(log, key, None)
        log.roll()
        model.append(log, b"k1", b"in the active segment")
        model.check(log)
    return model


def readable(log: Log) -> dict[int, tuple[bytes, bytes | None]]:
    """The records of a log."""
    return {r.offset: (r.key, r.value) for r in log.records() if r.key is not None}


def leftovers(path: Path) -> list[str]:
    """The names of files of swaps."""
    names = os.listdir(path / "log-0")
    return [name for name in names if name.endswith((".swap", ".cleaned"))]


class CountingFileSystem(FaultyFileSystem):
    """Lists the calls of an operation, or kills the process at one of them."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.seen: list[str] = []
        self.kill_at = -1
        self.at_each: Callable[[], None] | None = None
        self._at_calls: dict[tuple[str, int], Callable[[], object]] = {}

    def do_at(self, call: str, number: int, do: Callable[[], object]) -> None:
        """Call ``do`` before one of the next calls."""
        self._at_calls[call, self.calls.get(call, 0) + number] = do

    def due(self, call: str) -> Any:
        """As the base class, and list the call."""
        do = self._at_calls.pop((call, self.calls.get(call, 0)), None)
        if do is not None:
            do()
        if call in CALLS:
            if len(self.seen) == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.seen.append(call)
            if self.at_each is not None:
                self.at_each()
        return super().due(call)


def open_on(fs: FaultyFileSystem) -> Log:
    """Open a log whose index can fail, too."""
    log = kstore.open_log(fs.root, env=SystemEnv(fs=fs), **SETTINGS)
    index: Any = log.local.directory.index
    change = index.change

    def failing(do: Any) -> Any:
        fault = fs.due("index")
        if fault is not None:
            fault.raise_now("the index")
        return change(do)

    index.change = failing
    return log
