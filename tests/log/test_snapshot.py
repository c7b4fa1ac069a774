"""Snapshots: what they hold while others write, clean and delete, and that neither side changes the
other.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.env import sync_dir
from kstore.log import Log, LogStorageError, SnapshotError, snapshot
from kstore.log.offline.verify import verify
from kstore.log.segments import removal
from kstore.types import TopicPartition
from tests.log.handling import values
from tests.log.retention.failing_files import is_killed


def numbers(start: int, end: int) -> list[bytes]:
    """Values in order, some of them long."""
    return [b"%d" % number + b"." * (number % 50) for number in range(start, end)]


def filled(path: Path, **options: object) -> Log:
    """A log of several segments."""
    log = kstore.open_log(path, topic="orders", segment_bytes=2000, **options)  # type: ignore[arg-type]
    for start in range(0, 1000, 20):
        log.append_many(numbers(start, start + 20))
    assert len(log.segments) > 10
    return log


@pytest.mark.parametrize("opened", ["writer", "reader"])
def test_it_has_what_was_there(tmp_path: Path, opened: str) -> None:
    with filled(tmp_path / "data") as log:
        log.delete_before(130)
        source = log
        if opened == "reader":
            source = kstore.open_log(tmp_path / "data", topic="orders", read_only=True)
        source.snapshot(tmp_path / "copy")
        log.append(b"later")
        with kstore.open_log(tmp_path / "copy", topic="orders") as copy:
            assert values(copy) == numbers(130, 1000)
            assert (copy.log_start_offset, copy.topic_id) == (130, log.topic_id)
            copy.append(b"other")
        assert values(log) == [*numbers(130, 1000), b"later"]
        source.close()


def test_a_log_is_deleted_and_its_snapshot_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files are cut in steps before they are removed, but not those of the snapshot."""
    monkeypatch.setattr(removal, "STEP_BYTES", 1000)
    monkeypatch.setattr(snapshot, "_reflink", lambda *_: False)  # with it, no file is shared
    filled(tmp_path / "data").close()
    with kstore.open_log_dir(tmp_path / "data") as opened:
        opened.snapshot(tmp_path / "copy")
        opened.delete(TopicPartition("orders", 0))
        assert list((tmp_path / "data").glob("orders-*")) == []
    with kstore.open_log(tmp_path / "copy", topic="orders") as copy:
        assert values(copy) == numbers(0, 1000)


def test_neither_side_changes_the_other(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as log:
        log.snapshot(tmp_path / "copy")
        sizes = {path.name: path.stat().st_size for path in Path(log.path).glob("*.log")}
        linked = [path for path in (tmp_path / "copy").rglob("*.log") if path.stat().st_nlink > 1]
        with kstore.open_log(tmp_path / "copy", topic="orders") as copy:
            copy.truncate(333)
            copy.append_many([b"x"] * 100)
            log.truncate(700)
            assert values(log) == numbers(0, log.log_end_offset)
            assert 680 <= log.log_end_offset <= 700
            end = copy.log_end_offset - 100
            assert values(copy) == [*numbers(0, end), *[b"x"] * 100]
            log.delete_before(500)
            log.append_many([b"y"] * 100)
        with kstore.open_log(tmp_path / "copy", topic="orders") as copy:
            assert values(copy) == [*numbers(0, end), *[b"x"] * 100]
        # Shared as far as this file system can: else there would be nothing to be careful with.
        assert linked or sizes
    with kstore.open_log(tmp_path / "data", topic="orders") as log:
        assert len(values(log)) == log.log_end_offset - 500


def test_while_others_write_clean_and_delete(tmp_path: Path) -> None:
    log = kstore.open_log(
        tmp_path / "data", segment_bytes=3000, cleanup_policy=("compact", "delete"),
        retention_bytes=40_000,
    )  # fmt: skip
    stop = threading.Event()
    problems: list[BaseException] = []

    def change() -> None:
        number = 0
        try:
            while not stop.is_set():
                batch = range(number, number + 10)
                log.append_many([(b"k%d" % (each % 7), b"%d" % each) for each in batch])
                number += 10
                if number % 500 == 0:
                    log.compact()
                    log.enforce_retention()
        except BaseException as problem:  # noqa: BLE001 (raised below)
            problems.append(problem)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in range(12):
            before = log.log_end_offset
            log.snapshot(tmp_path / f"copy{number}")
            after = log.log_end_offset
            with kstore.open_log(tmp_path / f"copy{number}") as copy:
                assert before <= copy.log_end_offset <= after
                found = [(record.offset, record.value) for record in copy.records()]
            assert [b"%d" % offset for offset, _ in found] == [value for _, value in found]
            # Of each key the newest record is there.
            assert copy.log_end_offset - found[-1][0] == 1
            assert verify(tmp_path / f"copy{number}").problem_count == 0
    finally:
        stop.set()
        thread.join()
        log.close()
    assert problems == []


def test_a_transaction_is_in_all_logs_or_in_none(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path / "data") as log_dir:
        logs = [log_dir.log(name) for name in ("a", "b", "c")]
        stop = threading.Event()

        def change() -> None:
            while not stop.is_set():
                with log_dir.transaction() as transaction:
                    for log in logs:
                        transaction.append(log, b"x")

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for number in range(20):
                log_dir.snapshot(tmp_path / f"copy{number}")
        finally:
            stop.set()
            thread.join()
    ends = set()
    for number in range(20):
        with kstore.open_log_dir(tmp_path / f"copy{number}") as copy:
            found = {copy.log(name).log_end_offset for name in ("a", "b", "c")}
            assert len(found) == 1
            ends |= found
    assert len(ends) > 1


def test_cursors_and_queues_come_along(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path / "data") as log_dir:
        log, other = log_dir.log("orders"), log_dir.log("other")
        log.append_many(numbers(0, 10))
        other.append(b"x")
        log.cursor("mailer").commit(4)
        other.cursor("mailer").commit(1)
        queue = log.queue("work")
        queue.ack(*queue.get_many(3, 0))
        held = queue.get(0)
        assert held is not None
        held.reject("no")
        leased = queue.get(0)
        log.snapshot(tmp_path / "copy")
        with kstore.open_log(tmp_path / "copy", topic="orders") as copy:
            assert copy.cursor("mailer").committed == 4
            with copy.queue("work") as same:
                assert leased is not None
                found = same.get(0)
                assert found is not None
                assert (found.offset, found.deliveries) == (leased.offset, 2)
                assert [letter.offset for letter in same.dead_letters()] == [3]
            assert len(os.listdir(tmp_path / "copy" / ".cursors")) == 1
        leased.ack()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as log:
        (tmp_path / "copy").mkdir()
        log.snapshot(tmp_path / "copy")
        with pytest.raises(SnapshotError, match="not empty"):
            log.snapshot(tmp_path / "copy")
        (tmp_path / "file").write_text("x")
        with pytest.raises(LogStorageError):
            log.snapshot(tmp_path / "file")


def test_a_log_can_be_cut_and_closed_while_its_last_segment_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kstore.open_log(tmp_path / "log")
    log.append_many([b"old %d" % number for number in range(9)])
    real = snapshot.copy_file

    def copy(source: str, target: str, size_bytes: int) -> None:
        assert log.local.swapping.plain.acquire(blocking=False), "it holds the lock"
        log.local.swapping.plain.release()
        log.truncate(0)
        log.append_many([b"new %d" % number for number in range(9)])
        log.close()
        real(source, target, size_bytes)

    monkeypatch.setattr(snapshot, "_reflink", lambda *_: False)
    monkeypatch.setattr(snapshot, "copy_file", copy)
    log.snapshot(tmp_path / "copy")
    assert log.closed
    with kstore.open_log(tmp_path / "copy") as copied:
        assert [record.value for record in copied.records()] == [b"old %d" % n for n in range(9)]
    assert not list((tmp_path / "copy").rglob("*.cleaned"))
    with kstore.open_log(tmp_path / "log") as left:
        assert [record.value for record in left.records()] == [b"new %d" % n for n in range(9)]


def test_a_copy_that_fails_leaves_no_second_name_of_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(snapshot, "_reflink", lambda *_: False)
    monkeypatch.setattr(snapshot, "copy_file", full)
    with kstore.open_log(tmp_path / "log") as log:
        log.append(b"a")
        with pytest.raises(LogStorageError):
            log.snapshot(tmp_path / "copy")
        assert Path(log.segments[-1].path).stat().st_nlink == 1
        assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("step", ["_share_log", "copy_file", "_sync_folder", "_name"])
def test_a_killed_process_leaves_no_folder_that_looks_like_a_copy(
    tmp_path: Path, step: str, exists: bool
) -> None:
    """The folder that it leaves lacks the newest records, but it does not have the copy's name."""
    target = tmp_path / "copy"
    if exists:
        target.mkdir()

    def work() -> None:
        no_reflink = {"_reflink": lambda *_: False}
        killing = {step: lambda *_: os.kill(os.getpid(), signal.SIGKILL)}
        vars(snapshot).update(no_reflink | killing)
        with kstore.open_log(tmp_path / "data", topic="orders") as log:
            log.snapshot(target)

    with filled(tmp_path / "data"):
        pass
    assert is_killed(work)
    assert target.exists() == exists
    assert not exists or not list(target.iterdir())
    assert len(list(tmp_path.glob("copy.unfinished.*"))) == 1
    with kstore.open_log(tmp_path / "data", topic="orders") as log:
        log.snapshot(target)
        assert values(log) == numbers(0, 1000)
    with kstore.open_log(target, topic="orders") as copy:
        assert values(copy) == numbers(0, 1000)


def test_a_link_to_an_empty_folder_and_the_mode_of_that_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o750)
    (tmp_path / "copy").symlink_to("elsewhere")
    with filled(tmp_path / "data") as log:
        log.snapshot(tmp_path / "copy")
    assert (tmp_path / "copy").is_symlink()
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o750
    with kstore.open_log(tmp_path / "copy", topic="orders") as copy:
        assert values(copy) == numbers(0, 1000)


def no_copy(*_: object) -> None:
    raise AssertionError("it copies before it knows that the target can be replaced")


def test_a_folder_that_cannot_be_replaced_is_refused_before_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a file system is mounted on."""

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    (tmp_path / "copy").mkdir(mode=0o750)
    with filled(tmp_path / "data") as log:
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", busy)
            patch.setattr(snapshot, "_copy", no_copy)
            with pytest.raises(SnapshotError, match=r"can't be replaced.*busy.*mount point.*in it"):
                log.snapshot(tmp_path / "copy")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
        assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o750
        log.snapshot(tmp_path / "copy" / "monday")
    with kstore.open_log(tmp_path / "copy" / "monday", topic="orders") as copy:
        assert values(copy) == numbers(0, 1000)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
@pytest.mark.parametrize("exists", [False, True])
def test_a_target_in_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool, code: int
) -> None:
    def refused(path: str, *_: object) -> None:
        raise OSError(code, os.strerror(code), path)

    if exists:
        (tmp_path / "copy").mkdir()
    with filled(tmp_path / "data") as log, monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refused)
        with pytest.raises(SnapshotError) as caught:
            log.snapshot(tmp_path / "copy")
    assert f"can't be made in {tmp_path}" in str(caught.value)
    assert (f"for example one in {tmp_path / 'copy'}" in str(caught.value)) == exists


def test_the_mode_of_a_folder_that_cannot_be_written_is_set_after_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, modes = snapshot._copy, []

    def copy(rows: Sequence[Any], directory: str, target: str) -> None:
        modes.append(os.stat(target).st_mode & 0o777)
        real(rows, directory, target)

    monkeypatch.setattr(snapshot, "_copy", copy)
    (tmp_path / "copy").mkdir(mode=0o500)
    with filled(tmp_path / "data") as log:
        log.snapshot(tmp_path / "copy")
    assert modes == [0o700]
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o500
    (tmp_path / "copy").chmod(0o700)
    with kstore.open_log(tmp_path / "copy", topic="orders") as copied:
        assert values(copied) == numbers(0, 1000)


def test_the_names_of_new_folders_above_the_copy_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def noted(path: str) -> None:
        sync_dir(path)
        synced.append(os.path.relpath(path, tmp_path))

    monkeypatch.setattr(snapshot, "sync_dir", noted)
    with filled(tmp_path / "data") as log:
        log.snapshot(tmp_path / "one" / "two" / "copy")
    assert synced[:2] == [".", "one"]
    assert synced[-1] == "one/two"
