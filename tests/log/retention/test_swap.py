"""Compares the swap of compacted segments with a model, with a failure or a kill at each of its
steps: the newest records stay, and deleted or truncated records do not reappear.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log import Log, LogConfig, LogStorageError
from kstore.record import batches
from tests.log.handling import offsets
from tests.log.retention.failing_files import is_killed
from tests.log.retention.swap_model import (
    CALLS,
    LATER,
    NOW,
    SETTINGS,
    CountingFileSystem,
    Model,
    leftovers,
    open_on,
)


def steps_of_a_swap(source: Path, path: Path) -> list[str]:
    """The calls of a successful compaction."""
    shutil.copytree(source, path)
    fs = CountingFileSystem(str(path))
    with open_on(fs) as log:
        fs.seen.clear()
        log.compact(LATER)
        steps = list(fs.seen)
    shutil.rmtree(path)
    return steps


# -- what may happen after a failure


def nothing(log: Log, model: Model) -> None:
    """Do nothing."""


def append(log: Log, model: Model) -> None:
    """Append new values of some keys."""
    for number in range(12):
        model.append(log, b"k%d" % (number % 4), b"third %d" % number)


def compact_more(log: Log, model: Model) -> None:
    """Delete a key, and compact until its tombstone is removed."""
    model.append(log, b"k1", None)
    log.roll()
    model.append(log, b"k2", b"last")
    log.roll()
    model.append(log, b"other", b"active")
    for now_ms in (LATER, LATER + 5):
        for _ in range(4):
            with suppress(LogStorageError):
                log.compact(now_ms)
                break


def _truncate(log: Log, model: Model, end: int) -> None:
    model.truncate(log, end)
    for number in range(40):  # other records have the offsets now
        model.append(log, b"n%d" % (number % 30), b"new %d" % number)


def truncate_far(log: Log, model: Model) -> None:
    """Truncate to the segments that were compacted first."""
    _truncate(log, model, min(at for at in offsets(log) if at >= 20))


def truncate_near(log: Log, model: Model) -> None:
    """Truncate to the segments that were not."""
    _truncate(log, model, offsets(log)[-4])


def delete_some(log: Log, model: Model) -> None:
    """Delete records up to the middle of a segment."""
    log.delete_before(30)
    model.delete_before(30)
    append(log, model)


def delete_all(log: Log, model: Model) -> None:
    """Delete all records before the active segment, by retention."""
    base = log.segments[-1].base_offset
    config = {**SETTINGS, "cleanup_policy": ("delete",), "retention_bytes": 0}
    log.configure(LogConfig(**config))
    log.enforce_retention()
    start = log.log_start_offset
    assert start >= base
    model.delete_before(start)
    config = {**SETTINGS, "cleanup_policy": ("compact", "delete")}
    log.configure(LogConfig(**config))
    append(log, model)


def restart(log: Log, model: Model) -> None:
    """Restart the log at another offset."""
    log.restart(10)
    model.records.clear()
    model.start = model.end = 10
    append(log, model)


FOLLOWING = [
    nothing, append, compact_more, truncate_far, truncate_near, delete_some, delete_all, restart,
]  # fmt: skip


def cases(steps: list[str]) -> Iterator[tuple[str, int]]:
    """Each call, with its number among the calls of its kind."""
    for call in CALLS:
        for number in range(steps.count(call)):
            yield call, number


def _do(log: Log, model: Model, following: Any) -> None:
    """Do the following operation; its first step may fail as long as the disk fails."""
    before = model.copy()
    for _ in range(4):
        try:
            following(log, model)
            return
        except OSError:
            assert model.records == before.records
    pytest.fail("it failed more often than the disk")


@pytest.mark.slow
@pytest.mark.parametrize("failures", [1, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("following", FOLLOWING)
def test_a_swap_that_fails_at_any_step_is_taken_back_or_finished(
    prepared: tuple[Path, Model], tmp_path: Path, following: Any, failures: int
) -> None:
    source, before = prepared
    path = tmp_path / "log"
    steps = steps_of_a_swap(source, path)
    assert steps.count("unlink") >= 2
    for call, number in cases(steps):
        shutil.copytree(source, path)
        model = before.copy()
        fs = CountingFileSystem(str(path))
        log = open_on(fs)
        fs.fail(call, errno.EIO, after=number)
        for _ in range(failures - 1):
            fs.fail(call, errno.EIO)
        try:
            with suppress(LogStorageError):
                log.compact(LATER)
            model.check(log)
            _do(log, model, following)
            model.check(log)
        finally:
            fs.faults.clear()
            log.close()
        model.check_folder(path, without_index=number % 2 == 0)
        shutil.rmtree(path)


@pytest.mark.slow
def test_a_swap_that_can_neither_be_finished_nor_taken_back_leaves_the_log_readable(
    prepared: tuple[Path, Model], tmp_path: Path
) -> None:
    source, before = prepared
    path = tmp_path / "log"
    steps = steps_of_a_swap(source, path)
    for call, number in cases(steps):
        if call == "index":
            continue
        for without_index in (False, True):
            shutil.copytree(source, path)
            model = before.copy()
            fs = CountingFileSystem(str(path))
            log = open_on(fs)
            fs.fail(call, errno.EIO, after=number)
            for _ in range(200):  # for good
                fs.fail(call, errno.EIO)
            with suppress(LogStorageError):
                log.compact(LATER)
            append(log, model)
            model.check(log)
            if leftovers(path):
                for refused in (log.truncate, log.delete_before):
                    with pytest.raises(OSError, match="Input/output error"):
                        refused(30)
            model.check(log)
            with suppress(OSError):
                log.close()
            model.check_folder(path, without_index=without_index)
            shutil.rmtree(path)


def _killed(path: Path, number: int, work: Callable[[Log], object] | None) -> bool:
    """Open a log and use it, with kill -9 before a step; False: there are fewer steps."""

    def run() -> None:
        fs = CountingFileSystem(str(path))
        if work is None:
            fs.kill_at = number
        log = open_on(fs)
        if work is not None:
            fs.seen.clear()
            fs.kill_at = number
            work(log)

    return is_killed(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "following",
    [
        append,
        *(pytest.param(each, marks=pytest.mark.thorough) for each in (truncate_far, delete_some)),
    ],
)
def test_a_kill_at_any_step_leaves_the_old_segments_or_the_new(
    prepared: tuple[Path, Model], tmp_path: Path, following: Any
) -> None:
    source, before = prepared
    path, copy = tmp_path / "log", tmp_path / "copy"
    number = 0
    while True:
        shutil.copytree(source, path)
        was_killed = _killed(path, number, lambda log: log.compact(LATER))
        for without_index in (False, True):
            shutil.copytree(path, copy)
            model = before.copy()
            model.check_folder(copy, without_index=without_index)
            with kstore.open_log(copy, **SETTINGS) as log:
                following(log, model)
                model.check(log)
            model.check_folder(copy, without_index=not without_index)
            shutil.rmtree(copy)
        shutil.rmtree(path)
        number += 1
        if not was_killed:
            break
    assert number > 10


@pytest.mark.thorough
@pytest.mark.slow
def test_a_kill_while_a_start_finishes_a_swap_changes_nothing(
    prepared: tuple[Path, Model], tmp_path: Path
) -> None:
    source, before = prepared
    path, copy = tmp_path / "log", tmp_path / "copy"
    number = second = 0
    while True:
        shutil.copytree(source, path)
        was_killed = _killed(path, number, lambda log: log.compact(LATER))
        second = 0
        while leftovers(path):
            shutil.copytree(path, copy)
            again = _killed(copy, second, None)
            before.check_folder(copy, without_index=second % 2 == 0)
            shutil.rmtree(copy)
            second += 1
            if not again:
                break
        shutil.rmtree(path)
        number += 1
        if not was_killed:
            break


@pytest.mark.slow
def test_who_reads_at_any_step_of_a_swap_finds_what_there_is(
    prepared: tuple[Path, Model], tmp_path: Path
) -> None:
    source, model = prepared
    path = tmp_path / "log"
    steps = steps_of_a_swap(source, path)
    for at in range(len(steps)):
        for failing in (None, "replace", "unlink"):
            shutil.copytree(source, path)
            fs = CountingFileSystem(str(path))
            with open_on(fs) as log:
                wrong: list[BaseException] = []

                def look(fs: Any = fs, log: Log = log, at: int = at, wrong: Any = wrong) -> None:
                    if len(fs.seen) == at + 1:
                        try:
                            model.check(log)
                        except (AssertionError, OSError) as problem:
                            wrong.append(problem)

                if failing is not None:
                    fs.fail(failing, errno.EIO, after=4)
                    fs.fail(failing, errno.EIO)
                fs.seen.clear()
                fs.at_each = look
                with suppress(LogStorageError):
                    log.compact(LATER)
                fs.at_each = None
                assert wrong == []
                model.check(log)
            shutil.rmtree(path)


# -- other changes of the log meanwhile


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("position", [-2, -6, -10])
def test_a_truncation_while_segments_are_cleaned_loses_nothing_and_brings_nothing_back(
    prepared: tuple[Path, Model], tmp_path: Path, position: int
) -> None:
    path = tmp_path / "log"
    for number in range(6):
        shutil.copytree(prepared[0], path)
        model = prepared[1].copy()
        fs = CountingFileSystem(str(path))
        with open_on(fs) as log:
            append(log, model)
            log.roll()
            model.append(log, b"other", b"active")
            cut = offsets(log)[position]

            def truncate(log: Log = log, model: Model = model, cut: int = cut) -> None:
                model.truncate(log, cut)
                for each in range(12):
                    model.append(log, b"n%d" % each, b"another")

            fs.do_at("sync", number, truncate)
            log.compact(LATER)
            model.check(log)
            log.compact(LATER + 1)
            model.check(log)
        model.check_folder(path, without_index=True)
        shutil.rmtree(path)


def test_what_follows_a_truncation_is_dirty_again(tmp_path: Path) -> None:
    model = Model()
    with kstore.open_log(tmp_path, **SETTINGS) as log:
        for number in range(20):
            model.append(log, b"k%d" % number, b"value")
        log.roll()
        assert log.compact(NOW).end_offset == 20
        model.truncate(log, 10)
        assert log.dirt(NOW).first_dirty_offset == 10
        for _ in range(20):
            model.append(log, b"k", b"value")
        model.append(log, b"k", None)
        log.roll()
        log.compact(LATER)
        log.compact(LATER + 1)
        model.check(log)
        assert not [record for record in log.records() if record.key == b"k"]


@pytest.mark.slow
def test_a_read_that_began_before_a_swap_leaves_no_place_in_the_old_file(tmp_path: Path) -> None:
    fs = CountingFileSystem(str(tmp_path))
    model = Model()
    with open_on(fs) as log:
        for number in range(30):
            model.append(log, b"k%d" % (number % 2), b"value" * (number % 3))
        for number in range(30):
            model.append(log, b"m%d" % number, b"x")
        log.roll()
        for start in range(60):
            fs.do_at("read", 0, lambda: log.compact(LATER))
            offset = log.log_start_offset + start
            while offset < log.log_end_offset:
                data, offset = log.core.read(offset, log.log_end_offset, 200)
                assert data
            model.check(log)
            model.append(log, b"k0", b"again")
            log.roll()
        assert log.local.directory.damages == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_read_that_a_swap_overtakes_does_not_say_where_the_next_begins(
    tmp_path: Path, count: int
) -> None:
    """All records have one size: a place in the old file is one of another record in the new."""
    fs = CountingFileSystem(str(tmp_path))
    model = Model()
    with open_on(fs) as log:
        for key in (b"k", b"a", b"b", b"c", b"k", b"d"):
            model.append(log, key, b"v")
        log.roll()
        size = log.size_bytes // 6
        fs.do_at("read", 0, lambda: log.compact(LATER))
        data, offset = log.core.read(0, log.log_end_offset, count * size)
        assert (len(data), offset) == (count * size, count)
        assert log.size_bytes == 5 * size, "the first record is gone"
        data, _ = log.core.read(offset, log.log_end_offset, size)
        assert [batch.base_offset for batch in batches(data)] == [offset]
