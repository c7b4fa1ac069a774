"""With flush="always" no reader sees a record before it is on disk: after a power cut its offset
may belong to another record, and a reader that has read or committed past it would skip that one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.env import SystemEnv
from kstore.log import Log, LogStorageError, OffsetOutOfRangeError
from tests.log.segments.hooked_files import HookedFiles


class HeldDisk(HookedFiles):
    """A disk whose syncs wait until it is released, or fail."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.asked = threading.Event()
        self.broken = False

    def before(self, call: str, path: str) -> None:
        if call == "sync":
            self.asked.set()
            assert self.free.wait(30)
            if self.broken:
                raise OSError(5, "Input/output error", path)

    def hold(self) -> None:
        self.free.clear()
        self.asked.clear()


def append_held(disk: HeldDisk, log: Log, value: bytes) -> threading.Thread:
    """An append that waits for the held disk in a separate thread."""
    thread = threading.Thread(target=log.append, args=(value,), daemon=True)
    thread.start()
    assert disk.asked.wait(30)
    return thread


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture
def log(tmp_path: Path, disk: HeldDisk) -> Iterator[Log]:
    """A log that holds one record, safely."""
    with kstore.open_log(tmp_path, flush="always", env=SystemEnv(fs=disk)) as log:
        log.append(b"safe")
        yield log
        disk.free.set()


def test_a_record_that_waits_for_the_disk_is_seen_by_nobody(disk: HeldDisk, log: Log) -> None:
    cursor = log.cursor("reader")
    disk.hold()
    appending = append_held(disk, log, b"unsafe")
    assert log.log_end_offset == 2
    for isolation in ("read_uncommitted", "read_committed"):
        assert [r.value for r in log.records(isolation=isolation)] == [b"safe"]
        assert not log.read_batches(1, isolation=isolation)
        assert log.read_arrow(1, isolation=isolation).num_rows == 0
        assert not log.wait(1, 0, isolation=isolation)
    assert (log.high_watermark, log.last_stable_offset) == (1, 1)
    assert [r.value for r in log.follow(0, timeout=0)] == [b"safe"]
    assert log.offset_for_timestamp(0) == (0, next(log.records()).timestamp)
    assert [r.value for r in cursor.poll()] == [b"safe"]
    assert cursor.lag == 0
    disk.free.set()
    appending.join(30)
    assert [r.value for r in log.records()] == [b"safe", b"unsafe"]
    assert [r.value for r in cursor.poll()] == [b"unsafe"]


def test_the_largest_timestamp_is_one_that_may_be_seen(disk: HeldDisk, log: Log) -> None:
    safe = next(log.records()).timestamp
    disk.hold()
    threading.Thread(target=log.append, args=(b"later", None, safe + 1000), daemon=True).start()
    assert disk.asked.wait(30)
    assert log.largest_timestamp() == (0, safe)
    disk.free.set()
    assert log.wait(1, 30)
    assert log.largest_timestamp() == (1, safe + 1000)


def test_no_cursor_goes_past_what_is_on_the_disk(disk: HeldDisk, log: Log) -> None:
    cursor = log.cursor("reader")
    disk.hold()
    append_held(disk, log, b"unsafe")
    with pytest.raises(OffsetOutOfRangeError):
        cursor.seek(2)
    with pytest.raises(ValueError, match="can be read up to 1"):
        cursor.commit(2)


def test_who_waits_is_woken_by_the_sync(disk: HeldDisk, log: Log) -> None:
    disk.hold()
    found: list[bytes | None] = []
    follower = threading.Thread(
        target=lambda: found.append(next(log.follow(1, timeout=30)).value), daemon=True
    )
    follower.start()
    append_held(disk, log, b"now")
    assert not found
    disk.free.set()
    follower.join(30)
    assert found == [b"now"]


def test_what_the_disk_refused_stays_unseen(tmp_path: Path, disk: HeldDisk) -> None:
    log = kstore.open_log(tmp_path, flush="always", env=SystemEnv(fs=disk))
    log.append(b"safe")
    disk.broken = True
    with pytest.raises(LogStorageError):
        log.append(b"lost")
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    assert [r.value for r in log.records()] == [b"safe"]
    with pytest.raises(LogStorageError):
        log.close()


def test_what_a_killed_process_left_is_on_the_disk_before_it_is_seen(
    tmp_path: Path, disk: HeldDisk
) -> None:
    with kstore.open_log(tmp_path, env=SystemEnv(fs=disk)) as earlier:
        earlier.append_many([b"a", b"b"])
        earlier.log_dir.maintenance.stop()
        earlier.log_dir._give_lock_back()
        with kstore.open_log(tmp_path, flush="always", env=SystemEnv(fs=disk)) as log:
            core = log.core
            assert (core.durable_offset, core.high_watermark, core.log_end_offset) == (2, 2, 2)


def test_a_cut_takes_the_durable_end_back(log: Log) -> None:
    log.append_many([b"b", b"c"])
    log.append(b"d")
    assert log.truncate(3) == 3
    assert (log.high_watermark, log.core.durable_offset) == (3, 3)
    log.append(b"e")
    assert [r.value for r in log.records(3)] == [b"e"]


def test_other_policies_show_records_at_once(tmp_path: Path, disk: HeldDisk) -> None:
    with kstore.open_log(tmp_path, env=SystemEnv(fs=disk)) as log:
        disk.hold()
        log.append(b"x")
        assert [r.value for r in log.records()] == [b"x"]
        disk.free.set()


# -- readers in other processes


def test_a_reader_of_the_files_sees_what_is_on_the_disk(
    tmp_path: Path, disk: HeldDisk, log: Log
) -> None:
    with kstore.open_log(tmp_path, read_only=True) as reader:
        cursor = reader.cursor("reader")
        disk.hold()
        append_held(disk, log, b"unsafe")
        assert [r.value for r in reader.records()] == [b"safe"]
        assert (reader.log_end_offset, reader.high_watermark) == (2, 1)
        assert not reader.wait(1, 0)
        assert cursor.lag == 1
        found: list[bool] = []
        waiter = threading.Thread(target=lambda: found.append(reader.wait(1, 30)), daemon=True)
        waiter.start()
        disk.free.set()
        waiter.join(30)
        assert found == [True]
        assert [r.value for r in reader.records()] == [b"safe", b"unsafe"]


def test_what_was_cut_is_hidden_from_readers_before_it_goes(tmp_path: Path, log: Log) -> None:
    log.append_many([b"b", b"c"])
    with kstore.open_log(tmp_path, read_only=True) as reader:
        assert reader.high_watermark == 3
        log.truncate(1)
        reader.refresh()
        assert (reader.high_watermark, reader.log_end_offset) == (1, 1)


def test_after_a_restart_of_the_machine_what_is_in_the_files_is_on_the_disk(
    tmp_path: Path, disk: HeldDisk, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.hold()
    append_held(disk, log, b"left")
    monkeypatch.setattr("kstore.log.log_dir.boot_id", lambda: bytes(15) + b"1")
    with kstore.open_log(tmp_path, read_only=True) as reader:
        assert [r.value for r in reader.records()] == [b"safe", b"left"]


def test_a_writer_with_another_policy_hides_nothing_from_readers(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="always") as log:
        log.append(b"a")
    with kstore.open_log(tmp_path) as log:
        log.append(b"b")
        with kstore.open_log(tmp_path, read_only=True) as reader:
            assert [r.value for r in reader.records()] == [b"a", b"b"]
