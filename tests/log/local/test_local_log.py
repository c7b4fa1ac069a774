"""What the parts of a log share, without the facade: segments begin, changes are noted once for all
parts, and a log that must not be written to says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore._fast.log.log_segment import LogSegment
from kstore.env import SystemEnv
from kstore.log.errors import CorruptLogError, LogClosedError, ReadOnlyLogError
from kstore.log.index.index_store import IndexStore
from kstore.log.local.local_log import Fallbacks, LocalLog
from kstore.log.local.log_dir_state import LogDirState
from kstore.log.recovery.opening import open_log
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.types import TopicPartition

PLACE = TopicPartition("t", 0)


class Notes:
    """Remembers what it is asked to do, as upkeep and as waiters."""

    def __init__(self) -> None:
        self.dirty: list[str] = []
        self.unlinked: list[str] = []
        self.woken = 0

    def note_dirty(self, log: LocalLog) -> None:
        self.dirty.append(log.name)

    def unlink_later(self, path: str, delay_ms: int) -> None:
        self.unlinked.append(path)

    def wake(self) -> None:
        self.woken += 1

    def close(self) -> None:
        self.woken += 1


def make(folder: Path, notes: Notes, *, read_only: bool = False) -> LocalLog:
    """An empty log in its own folder."""
    (folder / "t-0").mkdir(exist_ok=True)
    directory = LogDirState(
        str(folder),
        read_only=read_only,
        flush_policy=FlushPolicy.OS,
        flush_interval_ms=1000,
        env=SystemEnv(),
        index=IndexStore(str(folder), read_only=read_only),
        boot=bytes(16),
    )

    def load_index(log: LocalLog, segment: LogSegment, offset: int, wrong: bool) -> None:
        raise AssertionError("the index of an active segment is in memory")

    def corrupt(log: LocalLog, segment: LogSegment, position: int) -> CorruptLogError:
        return CorruptLogError(segment.path, position)

    fallbacks = Fallbacks(load_index=load_index, corrupt=corrupt)
    log = LocalLog(directory, notes, fallbacks, PLACE, str(folder / "t-0"), LogConfig(), None)
    open_log(log, None)
    return log


def end(log: LocalLog) -> None:
    """Close what the test has opened."""
    for segment in log.core.segments:
        segment.close()
    log.directory.index.close()


def append(log: LocalLog, count: int) -> None:
    log.core.append_records([b"v"] * count, 0, -1)


def test_appends_note_the_log_once_until_a_checkpoint_takes_them(tmp_path: Path) -> None:
    notes = Notes()
    log = make(tmp_path, notes)
    append(log, 2)
    append(log, 3)
    assert notes.dirty == ["t-0"]
    log.core.take_dirty()
    append(log, 1)
    assert notes.dirty == ["t-0", "t-0"]
    end(log)


def test_a_roll_seals_the_active_segment_and_begins_one_at_the_end(tmp_path: Path) -> None:
    notes = Notes()
    log = make(tmp_path, notes)
    append(log, 3)
    log.disk.unsynced_names = False
    with log.core:
        log.roll_for_append(3)
    assert [(s.base_offset, s.sealed) for s in log.core.segments] == [(0, True), (3, False)]
    assert log.disk.unsynced_names, "the new file's name is not on the disk yet"
    end(log)


def test_a_segment_may_begin_behind_a_gap(tmp_path: Path) -> None:
    log = make(tmp_path, Notes())
    append(log, 2)
    log.begin_segment(10)
    log.core.set_offsets(0, 10, 10)
    append(log, 1)
    assert [s.base_offset for s in log.core.segments] == [0, 10]
    assert log.core.log_end_offset == 11
    end(log)


def test_only_who_waits_is_woken(tmp_path: Path) -> None:
    notes = Notes()
    log = make(tmp_path, notes)
    log.wake()
    assert notes.woken == 0
    log.waiters = notes
    log.wake()
    assert notes.woken == 1
    end(log)


def test_a_log_that_cant_be_written_to_says_why(tmp_path: Path) -> None:
    log = make(tmp_path, Notes())
    log.check_writable()
    log.closed = True
    with pytest.raises(LogClosedError, match="t-0 is closed: open it again"):
        log.check_writable()
    end(log)
    notes = Notes()
    reader = make(tmp_path, notes, read_only=True)
    with pytest.raises(ReadOnlyLogError, match="open for reading only: open it without read_only"):
        reader.check_writable()
    reader.note_dirty()
    assert notes.dirty == [], "a reader has nothing to write down"
    end(reader)
