"""Disks that forget, tear and fail: acknowledged records stay, losses are reported, and the log
stays usable.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.env import SystemEnv
from kstore.log import CorruptLogError, DiskFullError, Log, LogStorageError, RecordTooLargeError
from kstore.record import build_batch
from tests.log.handling import abandon, remove_index, values
from tests.reference.fault_fs import FaultyFileSystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory on the faulty disk."""
    path = tmp_path / "disk"
    path.mkdir()
    return path


def open_on(fs: FaultyFileSystem, **settings: Any) -> Log:
    """A log on a faulty disk."""
    return kstore.open_log(fs.root, env=SystemEnv(fs=fs), **settings)


# -- power cuts


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize("seed", range(30))
def test_after_a_power_cut_everything_acknowledged_under_always_is_there(
    root: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    fs = FaultyFileSystem(str(root), seed)
    log = open_on(fs, flush="always", segment_bytes=600, index_interval_bytes=100)
    acknowledged = 0
    for number in range(chance.randint(1, 40)):
        if chance.random() < 0.2:
            log.roll()
        log.append(b"%d" % number * chance.randint(1, 20))
        acknowledged += 1
    expected = values(log)
    cut = fs.power_cut(str(tmp_path / "after"), torn=chance.choice(["none", "any"]))
    abandon(log.log_dir)
    with kstore.open_log(cut) as after:
        found = values(after)
        assert found == expected[: len(found)]
        assert len(found) >= acknowledged
        assert after.append(b"goes on") == after.log_end_offset - 1


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize("seed", range(30))
def test_after_a_power_cut_everything_flushed_under_os_is_there(
    root: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    fs = FaultyFileSystem(str(root), seed)
    log = open_on(fs, flush="os", segment_bytes=600, index_interval_bytes=100)
    flushed = 0
    for number in range(chance.randint(1, 40)):
        log.append_many([b"%d" % number * chance.randint(1, 20)] * chance.randint(1, 3))
        if chance.random() < 0.15:
            log.flush()
            flushed = log.log_end_offset
    expected = values(log)
    cut = fs.power_cut(str(tmp_path / "after"))
    abandon(log.log_dir)
    with kstore.open_log(cut) as after:
        found = values(after)
        # Files reach the disk in any order: what was not flushed may be missing in the middle.
        assert found[:flushed] == expected[:flushed]
        assert after.log_end_offset >= flushed
        assert all(value in expected for value in found)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_while_recovering_loses_nothing(root: Path, tmp_path: Path, seed: int) -> None:
    fs = FaultyFileSystem(str(root), seed)
    log = open_on(fs, flush="always", segment_bytes=500)
    for number in range(20):
        log.append(b"%d" % number)
    first = fs.power_cut(str(tmp_path / "first"), torn="any")
    abandon(log.log_dir)
    second_fs = FaultyFileSystem(first, seed)
    log = open_on(second_fs, flush="always", segment_bytes=500)
    assert values(log)[:20] == [b"%d" % n for n in range(20)]
    log.append(b"more")
    second = second_fs.power_cut(str(tmp_path / "second"), torn="none")
    abandon(log.log_dir)
    with kstore.open_log(second) as after:
        assert values(after)[:20] == [b"%d" % n for n in range(20)]
        assert values(after)[-1] == b"more"


# -- torn tails and damage


def small_log(path: Path, count: int = 3, **settings: Any) -> tuple[Path, list[int]]:
    """A closed log of ``count`` one-record batches; its segment, and where each batch ends."""
    ends = []
    with kstore.open_log(path, **settings) as log:
        for number in range(count):
            log.append(b"value %d" % number, b"key", timestamp=1000 + number)
            ends.append(log.segments[-1].size_bytes)
        segment = Path(log.segments[-1].path)
    return segment, ends


def test_a_tail_torn_at_any_byte_is_cut_and_reported(tmp_path: Path) -> None:
    segment, ends = small_log(tmp_path / "log")
    whole = segment.read_bytes()
    remove_index(tmp_path / "log")
    for cut in range(len(whole) + 1):
        segment.write_bytes(whole[:cut])
        good = sum(end <= cut for end in ends)
        last = max([end for end in ends if end <= cut], default=0)
        torn = cut - last if any(whole[last:cut]) else 0  # zeros may be space taken ahead
        with kstore.open_log(tmp_path / "log") as log:
            assert values(log) == [b"value %d" % number for number in range(good)]
            assert log.recovery.truncated_bytes == torn
            assert log.append(b"next", timestamp=2000) == good
            assert values(log)[-1] == b"next"
        remove_index(tmp_path / "log")


@pytest.mark.parametrize("tail", [b"\0" * 500, b"\xff" * 70, bytes(range(256)), b"x"])
def test_garbage_behind_the_last_batch_is_cut(tmp_path: Path, tail: bytes) -> None:
    segment, _ = small_log(tmp_path / "log")
    with segment.open("ab") as file:
        file.write(tail)
    remove_index(tmp_path / "log")
    with kstore.open_log(tmp_path / "log") as log:
        assert log.recovery.truncated_bytes == (len(tail) if any(tail) else 0)
        assert len(values(log)) == 3
        assert segment.stat().st_size == log.size_bytes
    with kstore.open_log(tmp_path / "log") as log:
        assert log.recovery.truncated_bytes == 0


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("sealed", [True, False])
def test_damage_in_the_middle_is_reported_and_kept(
    tmp_path: Path, indexed: bool, sealed: bool
) -> None:
    path = tmp_path / "log"
    segment, ends = small_log(path, 5)
    if sealed:
        with kstore.open_log(path) as log:
            log.roll()
            log.append(b"in the next segment")
    raw = bytearray(segment.read_bytes())
    raw[ends[1] + 70] ^= 0xFF
    segment.write_bytes(raw)
    if not indexed:
        remove_index(path)
    with kstore.open_log(path) as log:
        assert values_before_damage(log) == [b"value 0", b"value 1"]
        with pytest.raises(CorruptLogError) as caught:
            list(log.records())
        assert (caught.value.segment, caught.value.position) == (str(segment), ends[1])
        assert log.log_end_offset == (6 if sealed else 5)
        assert [r.value for r in log.read(3)][:2] == [b"value 3", b"value 4"]
        assert log.append(b"usable") == log.log_end_offset - 1
    assert segment.read_bytes()[: len(raw)] == bytes(raw)


def values_before_damage(log: Log) -> list[bytes | None]:
    """What iteration gives before it raises."""
    found: list[bytes | None] = []
    records: Iterator[Any] = log.records()
    with suppress(CorruptLogError):
        found.extend(record.value for record in records)
    return found


@pytest.mark.slow
def test_random_bytes_for_a_segment_never_harm(tmp_path: Path) -> None:
    chance = random.Random(5)
    segment, _ = small_log(tmp_path / "log", 8)
    whole = segment.read_bytes()
    for _ in range(150):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            kind = chance.random()
            at = chance.randrange(len(raw))
            if kind < 0.5:
                raw[at] = chance.randrange(256)
            elif kind < 0.7:
                raw[at : at + chance.randint(1, 30)] = b""
            elif kind < 0.9:
                raw[at:at] = chance.randbytes(chance.randint(1, 30))
            else:
                raw[at : at + 8] = (2**63 - 1 - chance.randrange(99)).to_bytes(8, "big")
        segment.write_bytes(raw)
        remove_index(tmp_path / "log")
        with kstore.open_log(tmp_path / "log") as log:
            end = log.log_end_offset
            offset = log.log_start_offset
            while offset < end:
                try:
                    records = log.read(offset)
                    list(records)
                    offset = max(records.next_offset or 0, offset + 1)
                except CorruptLogError:
                    offset += 1
                    if end - offset > 100:
                        break


# -- errors of the file system


@pytest.mark.parametrize("flush", ["os", "always"])
@pytest.mark.parametrize("written", [0, 1, 40])
def test_a_full_disk_costs_only_that_append(root: Path, flush: str, written: int) -> None:
    fs = FaultyFileSystem(str(root))
    with open_on(fs, flush=flush) as log:
        log.append(b"before")
        fs.fail("append", errno.ENOSPC, written_bytes=written)
        with pytest.raises(DiskFullError, match="free some space"):
            log.append(b"refused")
        assert (values(log), log.log_end_offset) == ([b"before"], 1)
        assert log.append(b"after") == 1
    with kstore.open_log(root) as log:
        assert values(log) == [b"before", b"after"]
        assert log.recovery.truncated_bytes == 0


def test_a_full_disk_does_not_move_sequences_epochs_or_offsets(root: Path) -> None:
    fs = FaultyFileSystem(str(root))
    with open_on(fs) as log:
        batch = build_batch([b"x"], producer_id=5, producer_epoch=0, base_sequence=0)
        fs.fail("append", errno.ENOSPC)
        with pytest.raises(DiskFullError):
            log.append_batches(batch, leader_epoch=7)
        assert (log.log_end_offset, log.latest_epoch, len(log.core.producers)) == (0, -1, 0)
        assert log.append_batches(batch, leader_epoch=7).base_offset == 0
        assert log.append_batches(batch, leader_epoch=7).duplicate


def test_a_roll_that_fails_leaves_the_log_as_it_was(root: Path) -> None:
    fs = FaultyFileSystem(str(root))
    with open_on(fs, segment_bytes=200) as log:
        log.append(b"x" * 80)
        fs.fail("open", errno.ENOSPC)
        with pytest.raises(DiskFullError):
            log.append(b"y" * 80)
        assert values(log) == [b"x" * 80]
        assert log.append(b"z" * 80) == 1
        assert values(log) == [b"x" * 80, b"z" * 80]


def test_a_failed_sync_does_not_acknowledge(root: Path, tmp_path: Path) -> None:
    fs = FaultyFileSystem(str(root))
    log = open_on(fs, flush="always")
    log.append(b"one")
    fs.fail("sync", errno.EIO)
    for value in (b"two", b"three"):  # the disk works again, but may have dropped earlier writes
        with pytest.raises(LogStorageError, match="open it again"):
            log.append(value)
    with pytest.raises(LogStorageError):
        log.flush()
    cut = fs.power_cut(str(tmp_path / "after"), torn="none")
    abandon(log.log_dir)
    with open_on(FaultyFileSystem(cut), flush="always") as after:
        assert values(after) == [b"one"]
        after.append(b"four")
        assert after.core.durable_offset == after.log_end_offset


def test_a_read_error_is_told_and_passes(root: Path) -> None:
    fs = FaultyFileSystem(str(root))
    with open_on(fs) as log:
        log.append_many([b"x" * 100] * 10)
        fs.fail("read", errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            list(log.read(0))
        assert len(values(log)) == 10


def test_a_record_above_the_limit_is_refused_and_the_log_goes_on(root: Path) -> None:
    with kstore.open_log(root, max_message_bytes=500) as log:
        with pytest.raises(RecordTooLargeError, match="max_message_bytes"):
            log.append(b"x" * 1000)
        assert log.append(b"small") == 0


def test_the_index_gone_costs_only_a_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with kstore.open_log(path, segment_bytes=1000, index_interval_bytes=100) as log:
        for number in range(100):
            log.append(b"%d" % number, timestamp=5000 + number)
        looked_up = [log.offset_for_timestamp(5000 + n) for n in range(100)]
    remove_index(path)
    with kstore.open_log(path, segment_bytes=1000, index_interval_bytes=100) as log:
        assert [log.offset_for_timestamp(5000 + n) for n in range(100)] == looked_up
        assert values(log) == [b"%d" % n for n in range(100)]


def test_a_damaged_index_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with kstore.open_log(path) as log:
        log.append_many([b"%d" % n for n in range(100)])
    for file in path.glob(".kstore*"):
        raw = file.read_bytes()
        file.write_bytes(random.Random(3).randbytes(len(raw)))
    with kstore.open_log(path) as log:
        assert len(values(log)) == 100


@pytest.mark.slow
def test_faults_while_cleaning_leave_the_log_readable(root: Path) -> None:
    for call in ("append", "sync", "replace", "open", "fsync_dir", "unlink"):
        for after in range(4):
            shutil.rmtree(root)
            root.mkdir()
            fs = FaultyFileSystem(str(root))
            settings = {"cleanup_policy": "compact", "segment_bytes": 400}
            with open_on(fs, **settings) as log:
                for number in range(40):
                    log.append(b"%d" % number, b"%d" % (number % 3))
                expected = {record.key: record.value for record in log.records()}
                fs.fail(call, errno.EIO, after=after)
                try:
                    log.compact()
                except LogStorageError:
                    fs.faults.clear()
                    assert {r.key: r.value for r in log.records()} == expected
                    log.compact()
                fs.faults.clear()
                assert {r.key: r.value for r in log.records()} == expected
                if log.local.disk.failure is not None:  # of the log's own segments, before a swap
                    with pytest.raises(LogStorageError, match="flushing"):
                        log.close()
            with kstore.open_log(root, **settings) as log:
                assert {r.key: r.value for r in log.records()} == expected
                assert log.recovery.damages == []
