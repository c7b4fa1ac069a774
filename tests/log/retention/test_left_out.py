"""Records removed as lost, and offsets that a replica skips: no failure reassigns an offset."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from kstore.log import Log, open_log_dir
from tests.log.handling import fill_segments, offsets, replicated_dir
from tests.log.retention.failing_files import FailingFiles, is_killed
from tests.reference.fault_fs import FaultyFileSystem

END = 40


def make(path: Path, files: FailingFiles, *, rolled: bool) -> Log:
    """A log of records at 0 to 39 in four segments; if ``rolled``, with an empty fifth one."""
    directory = replicated_dir(path, files, index_interval_bytes=150)
    log = directory.log("t")
    fill_segments(log, range(END), in_epoch=4)
    log.core.set_high_watermark(4)
    if rolled:
        log.roll()
    return log


def is_right(log: Log, kept: int) -> int:
    """Check that the log has at least its first ``kept`` records, and its former end; returns the
    number of records.
    """
    assert log.log_end_offset == END
    log.core.set_high_watermark(END)
    found = offsets(log)
    assert found == list(range(len(found)))
    assert len(found) >= kept
    assert log.core.epochs.as_list() == [(n, 4 * n) for n in range((len(found) + 3) // 4)]
    return len(found)


@pytest.mark.parametrize(("at", "rolled"), [(0, False), (5, True), (10, False), (36, True)])
def test_what_fails_while_records_are_left_out_gives_no_offset_again(
    tmp_path: Path, at: int, rolled: bool
) -> None:
    for number in range(100):
        path = tmp_path / str(number)
        files = FailingFiles()
        log = make(path, files, rolled=rolled)
        failed = files.fails(number, partial(log.leave_out, at))
        left = is_right(log, at)
        assert log.log_dir.lost_offsets == END - left
        assert not log.has_lost
        with log.log_dir:
            log.leave_out(at)
            assert is_right(log, at) == at
            assert log.append(b"next") == END
        with replicated_dir(path) as directory:
            log = directory.log("t")
            assert (log.recovery.losses, log.recovery.damages) == ([], [])
            assert offsets(log) == [*range(at)]
            assert log.log_end_offset == END + 1
        if not failed:
            break
    assert 2 < number < 99


def leave_out_and_die(path: Path, at: int, number: int, *, rolled: bool) -> None:
    """Leave the end of a log out, with kill -9 after this number of calls."""
    files = FailingFiles()
    log = make(path, files, rolled=rolled)
    os.utime(log.local.path, (1, 1))  # no change of the folder is recent
    files.kills, files.left = True, number
    log.leave_out(at)


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize(("at", "rolled"), [(5, True), (36, False)])
def test_a_kill_while_records_are_left_out_gives_no_offset_again(
    tmp_path: Path, at: int, rolled: bool
) -> None:
    for number in range(100):
        path = tmp_path / str(number)
        killed = is_killed(partial(leave_out_and_die, path, at, number, rolled=rolled))
        with replicated_dir(path, index_interval_bytes=150) as directory:
            log = directory.log("t")
            assert log.recovery.damages == []
            log.skip_lost()  # it is to lead
            is_right(log, at)
            log.leave_out(at)
            assert is_right(log, at) == at
        os.utime(log.local.path)
        with open_log_dir(path, index_interval_bytes=150) as directory:
            assert is_right(directory.log("t"), at) == at, "no file of it is left"
        if not killed:
            break
    assert 2 < number < 99


def test_offsets_that_could_not_be_skipped_are_skipped_later(tmp_path: Path) -> None:
    with open_log_dir(tmp_path) as directory:
        log = directory.log("t")
        for number in range(10):
            log.append_many([b"x"], leader_epoch=number // 3)
        file, size = Path(log.segments[-1].path), log.size_bytes // 10
    os.truncate(file, 5 * size)
    files = FaultyFileSystem(str(tmp_path))
    with replicated_dir(tmp_path, files) as directory:
        log = directory.log("t")
        files.fail("open", errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            log.skip_lost()
        assert (log.log_end_offset, log.has_lost) == (5, True)
        assert log.core.epochs.as_list() == [(0, 0), (1, 3)]
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        log.skip_lost()
        assert log.core.epochs.as_list() == [(0, 0), (1, 3), (2, 6), (3, 9)]
        assert log.append(b"next") == 10
