"""A damaged index: the records are all there, none of them is wrong, the process lives, and the
index is rebuilt from the segments.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

import kstore
from kstore._fast.log.log_segment import LogSegment
from kstore.log import Log, LogDir
from kstore.log.index.index_store import ENVIRONMENT_NAME, LogState
from kstore.log.index.lmdb_check import find_damage, move_aside
from kstore.log.local import checkpoint
from kstore.log.local.local_log import LocalLog
from kstore.log.local.start_offset import START_OFFSET_NAME
from kstore.log.offline.verify import verify
from kstore.log.recovery import segment_index
from kstore.log.settings import LogConfig
from kstore.record import decode
from kstore.types import TopicPartition
from tests.log.segments.damaged_dirs import DAMAGES, PAGE, SEEDS, Examiner
from tests.log.segments.damaged_dirs import examiner as examiner  # a fixture


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("kind", DAMAGES)
def test_whatever_befalls_the_index_every_record_is_found_by_offset_and_time(
    examiner: Examiner, kind: str, seeds: range
) -> None:
    assert examiner.findings(ENVIRONMENT_NAME, kind, seeds) == []


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize("name", ["partition.metadata", START_OFFSET_NAME])
@pytest.mark.parametrize("kind", ["bits", "cut", "noise"])
def test_damage_of_a_small_file_costs_no_record(examiner: Examiner, name: str, kind: str) -> None:
    assert examiner.findings(f"*/{name}", kind, range(4)) == []  # it is a small file


def small_log_dir(path: Path) -> LogDir:
    return kstore.open_log_dir(str(path))


def indexed_log(log_dir: LogDir) -> Log:
    """A log of 600 records in segments with many index entries each."""
    config = LogConfig(segment_bytes=15_000, index_interval_bytes=80)
    log = log_dir.log("topic", 0, config=config)
    if log.log_end_offset == 0:
        for number in range(600):
            log.append(b"%d" % number, timestamp=1000 + number)
        log_dir.maintenance.tick()
    return log


def assert_all_there(log: Log, count: int = 600) -> None:
    """Every record by its offset, and by its time."""
    for offset in range(count):
        record = next(iter(log.read(offset, 1)))
        assert (record.offset, record.value) == (offset, b"%d" % offset)
        assert log.offset_for_timestamp(1000 + offset) == (offset, 1000 + offset)


# -- the file before it is opened


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A closed LMDB file of many pages."""
    path = tmp_path / "data.mdb"
    env = lmdb.open(str(path), subdir=False, map_size=1 << 24)
    for round_ in range(4):
        with env.begin(write=True) as transaction:
            for number in range(0, 90, 1 + round_):
                transaction.put(b"key %d" % number, os.urandom(40 + number * 30))
            transaction.delete(b"key %d" % round_)
    env.close()
    return path


def test_a_file_in_use_that_never_was_and_a_whole_one_are_right(
    environment: Path, tmp_path: Path
) -> None:
    assert find_damage(str(environment)) is None
    assert find_damage(str(environment), whole=False) is None
    assert find_damage(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize("size", [0, 1, PAGE, 2 * PAGE - 1, 2 * PAGE, 5 * PAGE])
def test_a_file_that_was_cut_is_damaged(environment: Path, size: int) -> None:
    os.truncate(environment, size)
    assert find_damage(str(environment)) is not None


def test_every_page_in_use_is_looked_at(environment: Path) -> None:
    whole = environment.read_bytes()
    found = 0
    for at in range(0, len(whole), PAGE):
        environment.write_bytes(whole[:at] + b"\xff" * 16 + whole[at + 16 :])
        found += find_damage(str(environment)) is not None
    env = lmdb.open(str(environment), subdir=False, readonly=True, lock=False)
    stat = env.stat()
    env.close()
    used = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    assert found > used > 20  # and the roots; what is left is free


def test_an_older_root_that_looks_like_the_newest_one_is_damage(environment: Path) -> None:
    data = bytearray(environment.read_bytes())
    at = 16 + 8 + 16 + 96 + 8  # the transaction's number in the first page
    (number,) = struct.unpack_from("=Q", data, at)
    struct.pack_into("=Q", data, at, number + 64)
    environment.write_bytes(data)
    assert "not consecutive" in str(find_damage(str(environment)))
    assert "not consecutive" in str(find_damage(str(environment), whole=False))


def test_only_the_last_damaged_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "index"
    for number in range(1, 6):
        path.write_bytes(b"%d" % number)
        assert move_aside(str(path)) == f"{path}.damaged.{number}"
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "index.damaged.3", "index.damaged.4", "index.damaged.5",
    ]  # fmt: skip


def test_a_damaged_file_is_moved_aside_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    index = tmp_path / ENVIRONMENT_NAME
    damaged = index.read_bytes()[: 3 * PAGE]
    index.write_bytes(damaged)
    with small_log_dir(tmp_path) as log_dir:
        assert log_dir.index_damages == 1
        assert_all_there(indexed_log(log_dir))
        assert log_dir.partitions() == [TopicPartition("topic", 0)]  # that file is none
    aside = tmp_path / f"{ENVIRONMENT_NAME}.damaged.1"
    assert aside.read_bytes() == damaged
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert str(aside) in told.getMessage()
    caplog.clear()
    with small_log_dir(tmp_path) as log_dir:
        assert log_dir.index_damages == 0
        assert_all_there(indexed_log(log_dir))
    assert caplog.records == []


def test_a_reader_leaves_a_damaged_index_alone_and_follows_its_replacement(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    index = tmp_path / ENVIRONMENT_NAME
    index.write_bytes(index.read_bytes()[: 3 * PAGE])
    with kstore.open_log_dir(str(tmp_path), read_only=True) as reader:
        assert_all_there(reader.log("topic", 0))
        assert index.stat().st_size == 3 * PAGE
        with small_log_dir(tmp_path) as log_dir:
            indexed_log(log_dir)
        assert reader.index is not None
        assert reader.index.state("topic-0") is not None


# -- values


def change_values(path: Path, kind: bytes, change: Callable[[bytes], bytes | None]) -> int:
    """Change what the index has under keys of a kind, past all checks; how many there were."""
    env = lmdb.open(str(path / ENVIRONMENT_NAME), subdir=False, map_size=1 << 30)
    with env.begin(write=True) as transaction:
        rows = [(key, value) for key, value in transaction.cursor() if key[:1] == kind]
        for key, value in rows:
            changed = change(value)
            if changed is None:
                transaction.delete(key)
            else:
                transaction.put(key, changed)
    env.close()
    return len(rows)


def flipped(value: bytes) -> bytes:
    """With one bit changed."""
    chance = random.Random(len(value))
    changed = bytearray(value)
    changed[chance.randrange(len(value) - 4)] ^= 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize(
    ("change", "is_told"),
    [(flipped, True), (lambda _: None, False), (lambda value: value[:-4], False)],
    ids=["damaged", "missing", "of a version without checksums"],
)
def test_pages_that_can_not_be_believed_are_made_anew_and_written_down(
    tmp_path: Path,
    change: Callable[[bytes], bytes | None],
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    pages = change_values(tmp_path, b"P", change)
    assert pages >= 3
    with small_log_dir(tmp_path) as log_dir:
        assert_all_there(indexed_log(log_dir))
        assert (log_dir.index_damages > 0) == is_told
    assert change_values(tmp_path, b"P", bytes) == pages
    with small_log_dir(tmp_path) as log_dir:
        scanned = count_scans(monkeypatch)
        assert_all_there(indexed_log(log_dir))
        assert log_dir.index_damages == 0
        assert scanned == []


def count_scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The segments that are read again for their index from now on."""
    found: list[str] = []
    original = segment_index.reindex

    def reindex(log: LocalLog, segment: LogSegment) -> None:
        found.append(segment.path)
        original(log, segment)

    monkeypatch.setattr(segment_index, "reindex", reindex)
    return found


@pytest.mark.parametrize("shift", [(1, 0), (0, 7), (5, 300)])
def test_an_entry_that_points_to_another_batch_is_not_believed(
    tmp_path: Path, shift: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with small_log_dir(tmp_path) as log_dir:
        log = indexed_log(log_dir)
        index = log_dir.index
        assert index is not None
        for segment in log.segments:
            rows = struct.iter_unpack("=IIq", index.pages("topic-0", segment.base_offset))
            moved = [
                (delta + shift[0], position + shift[1], time) for delta, position, time in rows
            ]
            segment.load(b"".join(struct.pack("=IIq", *row) for row in moved), 0)
        for offset in range(600):
            record = next(iter(log.read(offset, 1)))
            assert (record.offset, record.value) == (offset, b"%d" % offset)
            for size in (100, 700):
                data = log.read_batches(offset, size)
                assert list(decode(data))[-1].offset >= offset  # whole batches
        assert log_dir.state.wrong_indexes > 0
    assert "points to another batch" in caplog.text


def test_damaged_snapshots_of_producers_are_not_used(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        index = log_dir.index
        assert index is not None
        index.change(lambda transaction: index.put_snapshot(transaction, "a-0", 7, b"\1snapshot"))
        assert index.snapshot("a-0", 7) == b"\1snapshot"
    change_values(tmp_path, b"R", flipped)
    with small_log_dir(tmp_path) as log_dir:
        assert log_dir.index is not None
        assert log_dir.index.snapshots("a-0") == [7]
        assert log_dir.index.snapshot("a-0", 7) is None
        assert log_dir.index_damages == 1
    change_values(tmp_path, b"R", lambda _: b"\1of a version without checksums")
    with small_log_dir(tmp_path) as log_dir:
        assert log_dir.index is not None
        assert log_dir.index.snapshot("a-0", 7) == b"\1of a version without checksums"


def test_a_damaged_state_is_told_and_the_log_read_anew(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    change_values(tmp_path, b"L", lambda value: value[:1] + flipped(value[1:]))
    with small_log_dir(tmp_path) as log_dir:
        assert_all_there(indexed_log(log_dir))
        assert log_dir.index_damages == 1


# -- while it runs


class _Damaged:
    """An environment whose transactions fail as LMDB's do on a damaged page."""

    def __init__(self, real: Any, error: type[lmdb.Error]) -> None:
        self._real = real
        self._error = error

    def begin(self, **_: Any) -> Any:
        raise self._error("damaged by a test")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def damage_running(log_dir: LogDir, error: type[lmdb.Error]) -> None:
    """Have the next use of the index meet damage."""
    shared = log_dir.index._shared  # type: ignore[union-attr]
    shared.env = _Damaged(shared.env, error)


@pytest.mark.parametrize("error", [lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError])
def test_damage_met_by_a_read_heals_while_the_log_serves(
    tmp_path: Path, error: type[lmdb.Error], caplog: pytest.LogCaptureFixture
) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    with small_log_dir(tmp_path) as log_dir:
        log = indexed_log(log_dir)
        damage_running(log_dir, error)
        assert_all_there(log)
        assert log.append(b"600", timestamp=1600) == 600
        assert log_dir.index_damages == 1
        for _ in range(3):
            log_dir.maintenance.tick()
        entries = sum(s.persisted for s in log.segments)
        assert entries > 100
        assert all(s.complete for s in log.segments[:-1])
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    with small_log_dir(tmp_path) as log_dir:
        log = indexed_log(log_dir)
        assert log.recovery.scanned_bytes == 0
        assert_all_there(log, 601)
        assert log_dir.index_damages == 0


def test_damage_met_by_a_write_heals(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        log = indexed_log(log_dir)
        damage_running(log_dir, lmdb.CorruptedError)
        log.append(b"600", timestamp=1600)
        log.delete_before(3)
        log.truncate(599)
        log.append(b"599", timestamp=1599)
        assert log_dir.index_damages == 1
    with small_log_dir(tmp_path) as log_dir:
        log = indexed_log(log_dir)
        assert (log.log_start_offset, log.log_end_offset) == (3, 600)
        assert log.recovery.scanned_bytes == 0


def test_the_maintenance_makes_the_index_anew_without_any_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    with small_log_dir(tmp_path) as log_dir:
        log = indexed_log(log_dir)
        expected = {s.base_offset: s.persisted for s in log.segments}
        damage_running(log_dir, lmdb.CorruptedError)
        log.local.note_dirty()
        for _ in range(3):
            log_dir.maintenance.tick()
        assert {s.base_offset: s.persisted for s in log.segments} == expected
    with small_log_dir(tmp_path) as log_dir:
        scanned = count_scans(monkeypatch)
        assert_all_there(indexed_log(log_dir))
        assert scanned == []


def test_a_full_disk_is_no_damage(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        log = indexed_log(log_dir)
        damage_running(log_dir, lmdb.DiskError)
        with pytest.raises(OSError, match="the index can't be written"):
            log.delete_before(3)
        log_dir.index._shared.env = log_dir.index._shared.env._real  # type: ignore[union-attr]
        assert log_dir.index_damages == 0
        assert not list(tmp_path.glob("*.damaged.*"))


# -- what no segment says


def test_the_log_start_offset_outlives_the_index(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir).delete_before(123)
    (tmp_path / ENVIRONMENT_NAME).unlink()
    with small_log_dir(tmp_path) as log_dir:
        assert indexed_log(log_dir).log_start_offset == 123


def test_a_damaged_start_offset_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir).delete_before(123)
    (tmp_path / ENVIRONMENT_NAME).unlink()
    (tmp_path / "topic-0" / START_OFFSET_NAME).write_bytes(b"923 00000000\n")
    with small_log_dir(tmp_path) as log_dir:
        assert indexed_log(log_dir).log_start_offset <= 123
    assert f"{START_OFFSET_NAME} in" in caplog.text


def test_a_state_of_another_version_is_no_damage(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    change_values(tmp_path, b"L", lambda value: bytes([LogState().pack()[0] + 1]) + value[1:])
    with small_log_dir(tmp_path) as log_dir:
        assert_all_there(indexed_log(log_dir))
        assert log_dir.index_damages == 0


def test_verify_tells_a_damaged_index_and_a_damaged_page_of_it(tmp_path: Path) -> None:
    with small_log_dir(tmp_path) as log_dir:
        indexed_log(log_dir)
    assert verify(tmp_path).problem_count == 0
    change_values(tmp_path, b"P", flipped)
    (report,) = verify(tmp_path).partitions
    assert {each.kind for each in report.problems} == {"INDEX_DAMAGED"}
    os.truncate(tmp_path / ENVIRONMENT_NAME, 3 * PAGE)
    (report,) = verify(tmp_path).partitions
    assert [each.kind for each in report.problems] == ["INDEX_DAMAGED"]


# -- pages that a crash left short


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("seed", [1, 3])
def test_pages_of_processes_that_were_killed_do_not_overlap(tmp_path: Path, seed: int) -> None:
    """A killed process leaves a short page, and the next process begins another after it. A reader
    of the segment's beginning writes the page completely. Both seeds once had wrong entries.
    """
    choice = random.Random(seed)
    config = LogConfig(index_interval_bytes=1)
    path, count = tmp_path / "0", 0
    for life in range(40):
        with small_log_dir(path) as log_dir:
            log_dir.maintenance.stop()  # checkpoints happen on request
            log = log_dir.log("topic", 0, config=config)
            for _ in range(choice.randint(1, 4)):
                act = choice.choice(["append", "append", "checkpoint", "read"])
                if act == "append":
                    for _ in range(choice.randint(1, 4)):
                        log.append(b"%d" % count)
                        count += 1
                elif act == "checkpoint":
                    checkpoint.write_now(log.local)
                for _ in range(20 if act == "read" and count else 0):
                    offset = choice.randrange(count)
                    record = next(iter(log.read(offset, choice.choice([1, 100, 300, 3000]))))
                    assert (record.offset, record.value) == (offset, b"%d" % offset)
            assert log_dir.index_damages == 0
            index = log_dir.index
            assert index is not None
            pages = index.pages("topic-0", 0)
            offsets = [offset for offset, *_ in struct.iter_unpack("=IIq", pages)]
            assert offsets == sorted(set(offsets))
            path = tmp_path / f"{life + 1}"
            shutil.copytree(tmp_path / f"{life}", path)  # what kill -9 leaves
        shutil.rmtree(tmp_path / f"{life}")
