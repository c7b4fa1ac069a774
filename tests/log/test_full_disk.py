"""A disk that is full when logs are created: a clear message instead of a bare OSError, nothing
half created, and the next attempt works.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.env import SystemEnv
from kstore.log.cursors.group_offsets import OFFSETS_TOPIC
from kstore.log.errors import DiskFullError, LogStorageError
from kstore.log.index.spare_room import keep_room
from kstore.log.local import checkpoint, durability
from kstore.log.local.local_log import LocalLog
from tests.beside import small_disks
from tests.log.segments.hooked_files import HookedFiles

CALLS = ("mkdir", "write_file", "create")


class FullDisk(HookedFiles):
    """Full from the given call on, for the files of a topic."""

    def __init__(self, call: str, after: int, topic: str) -> None:
        self.call, self.left, self.topic = call, after, topic

    def before(self, call: str, path: str) -> None:
        if call == "write_file" and self.left == 0:
            Path(path + ".tmp").touch()  # a full disk makes files, and writes nothing to them
        if call == self.call and self.topic in path:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("after", [0, 1, 30])
def test_cursors_that_become_groups_are_tried_again(tmp_path: Path, call: str, after: int) -> None:
    fs = FullDisk(call, after, OFFSETS_TOPIC)
    with kstore.open_log(tmp_path, env=SystemEnv(fs=fs)) as log:
        log.append(b"x")
        log.append(b"y")
        cursor = log.cursor("mine")
        assert [record.value for record in cursor.poll()] == [b"x", b"y"]
        assert cursor.commit(1) == 1
        offsets = log.log_dir.committed_offsets
        for _ in range(2):
            with pytest.raises(DiskFullError, match="free some space and try again"):
                offsets.give_to_groups()
            assert cursor.committed == 1
        fs.call = "none"
        assert offsets.give_to_groups() == 1
        assert cursor.committed == 1
        made = [tp for tp in log.log_dir.partitions() if tp.topic == OFFSETS_TOPIC]
        assert len(made) == 50
        assert None not in [log.log_dir.topic_id(tp) for tp in made]
    with kstore.open_log(tmp_path) as log:
        assert log.cursor("mine").committed == 1
        assert [record.value for record in log.records()] == [b"x", b"y"]


def test_a_commit_of_a_cursor_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with kstore.open_log(tmp_path) as log:
        log.append_many([b"x", b"y"])
        cursor = log.cursor("mine")
        cursor.commit(1)
        with monkeypatch.context() as patched:
            for broken in (full, lambda *_: 7):  # nothing, or a part of it, is written
                patched.setattr(os, "pwrite", broken)
                with pytest.raises(DiskFullError, match="free some space and try again"):
                    cursor.commit(2)
                assert cursor.committed == 1
        assert cursor.commit(2) == 2


@pytest.mark.parametrize("call", CALLS)
def test_a_log_that_could_not_be_made_leaves_nothing_behind(tmp_path: Path, call: str) -> None:
    fs = FullDisk(call, 0, "orders")
    with kstore.open_log_dir(tmp_path, env=SystemEnv(fs=fs)) as log_dir:
        with pytest.raises(DiskFullError, match="orders-0 failed"):
            log_dir.log("orders")
        assert not list(tmp_path.glob("orders-0/*.tmp"))
        fs.call = "none"
        assert log_dir.log("orders").append(b"x") == 0
        assert log_dir.topic_id(log_dir.partitions()[0]) is not None


def test_the_index_keeps_space_for_deletions(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        for number in range(20):
            log_dir.log("orders", number).append(b"x")
        log_dir.maintenance.tick()
        status = (tmp_path / ".kstore.mdb").stat()
        room = status.st_blocks * 512 - status.st_size
        assert room >= max(128 << 10, status.st_size // 4)


def test_room_is_limited_by_the_disk_and_by_the_file_s_largest_size(tmp_path: Path) -> None:
    def room(path: Path, **limit: int) -> int:
        path.write_bytes(bytes(4096))
        keep_room(str(path), 3 << 20, 0.5, **limit)
        status = path.stat()
        return status.st_blocks * 512 - status.st_size

    with small_disks.small_disk(tmp_path / "disk", "2m") as folder:
        assert 1 << 20 < room(folder / "file") < 2 << 20
    assert room(tmp_path / "file", most_bytes=104_096) <= 100_000 + 4096


def test_retention_runs_while_checkpoints_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log(
        tmp_path, segment_bytes=1000, retention_bytes=3000, file_delete_delay_ms=0
    ) as log:
        maintenance = log.log_dir.maintenance
        log.log_dir.retention_check_ms = 0
        for _ in range(20):
            log.append(b"x" * 400)

        def full(*_: object) -> None:
            raise DiskFullError(errno.ENOSPC, "the index is full")

        with monkeypatch.context() as patched:
            patched.setattr(checkpoint, "write", full)
            with pytest.raises(DiskFullError):
                maintenance.tick()
            assert log.size_bytes <= 4000
            # The index still names these files: without them they would seem to be lost.
            deleted = list(Path(log.path).glob("*.deleted"))
            assert len(deleted) > 5
        maintenance.tick()
        assert not any(path.exists() for path in deleted)


@pytest.mark.parametrize("preallocate", [False, True])
def test_retention_frees_what_it_can_where_one_log_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preallocate: bool
) -> None:
    """The disk is full: nothing can be reserved; and one log cannot be synced."""
    with kstore.open_log_dir(
        tmp_path, segment_bytes=1000, file_delete_delay_ms=0, retention_ms=0,
        preallocate=preallocate,
    ) as log_dir:  # fmt: skip
        logs = [log_dir.log(name) for name in ("a", "b", "c")]
        for log in logs:
            for _ in range(10):
                log.append(b"x" * 400, None, 1)
        first = logs[0]
        sync = durability.sync_sealed

        def failing(log: LocalLog) -> None:
            if log is first.local:
                raise LogStorageError(errno.EIO, "it cannot be synced")
            sync(log)

        monkeypatch.setattr(durability, "sync_sealed", failing)
        log_dir.retention_check_ms = 0
        for _ in range(2):
            with pytest.raises(LogStorageError, match="cannot be synced"):
                log_dir.maintenance.tick()
        assert [log.size_bytes for log in logs] == [0, 0, 0]
        assert [any(Path(log.path).glob("*.deleted")) for log in logs] == [True, False, False]
        monkeypatch.setattr(durability, "sync_sealed", sync)
        log_dir.maintenance.tick()
        assert not any(tmp_path.rglob("*.deleted"))


def test_an_index_that_is_deleted_while_it_is_used(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append(b"x")
        for file in tmp_path.glob(".kstore.mdb"):
            file.unlink()
        log.log_dir.maintenance.tick()
        log.append(b"y")
    with kstore.open_log(tmp_path) as log:
        assert log.log_end_offset == 2


def test_a_file_that_cannot_be_deleted_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log(tmp_path) as log:
        maintenance = log.log_dir.maintenance
        paths = [tmp_path / f"old{number}.deleted" for number in range(3)]
        for path in paths:
            path.touch()
            maintenance.unlink_later(str(path), 0)
        unlink = log.local.env.fs.unlink

        def failing(path: str) -> None:
            if path == str(paths[0]):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            unlink(path)

        with monkeypatch.context() as patched:
            patched.setattr(log.local.env.fs, "unlink", failing, raising=False)
            with pytest.raises(OSError, match="error"):
                maintenance._unlink(float("inf"))
        maintenance._unlink(float("inf"))
        assert not any(path.exists() for path in paths)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled."""
    with small_disks.small_disk(tmp_path / "disk", "12m") as folder:
        yield folder


def test_retention_frees_a_full_disk(small_disk: Path) -> None:
    with kstore.open_log_dir(
        small_disk / "data", segment_bytes=1_000_000, file_delete_delay_ms=0
    ) as log_dir:
        log, maintenance = log_dir.log("large"), log_dir.maintenance
        for _ in range(30):
            log.append(os.urandom(200_000))
        for number in range(100):  # so much that the index must grow for the next checkpoint
            log_dir.log("small", number).append(b"x")
        with pytest.raises(DiskFullError):
            _ = [log.append_many([bytes(900)] * 1000) for _ in range(10)]
        with (small_disk / "other").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)) == 4096:
                pass
        log.configure(dataclasses.replace(log.local.config, retention_bytes=2_000_000))
        log_dir.retention_check_ms = 0
        for _ in range(2):  # the first one deletes, the second one removes the files
            maintenance.tick()
        log.append_many([bytes(900)] * 1000)
