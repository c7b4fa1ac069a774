"""Queues and cursors when their log has lost records at its end, or was copied: no later record is
skipped.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import ModuleType

import pytest

import kstore
from kstore.backup import create as creating
from kstore.backup.folder import BackupFolder
from kstore.backup.restore import restore
from kstore.cli.backup.sources import source_of_folders
from kstore.log import Log, log_dir, snapshot
from kstore.log.queue.queue_files import queue_floors
from tests.log.handling import drain, remove_index

NEW = [b"new %d" % number for number in range(8)]


def _work(log: Log) -> None:
    """Append, and let a queue and a cursor go to the end."""
    log.append_many([b"old"] * 5)
    queue, cursor = log.queue("mailer"), log.cursor("reader")
    drain(queue)
    cursor.poll()
    cursor.commit()
    queue.close()
    cursor.close()


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A log dir whose log has lost its last 5 records; a queue and a cursor have positions after
    its end.
    """
    path, ahead = tmp_path / "data", tmp_path / "ahead"
    with kstore.open_log(path) as log:
        _work(log)
    shutil.copytree(path, ahead)
    with kstore.open_log(ahead) as log:
        _work(log)
    shutil.copy(ahead / "log-0" / "queue.mailer", path / "log-0" / "queue.mailer")
    shutil.copytree(ahead / ".cursors", path / ".cursors", dirs_exist_ok=True)
    return path


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("after", ["another boot", "a lost index"])
def test_new_records_in_place_of_lost_ones_are_delivered(
    lost: Path, after: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if after == "another boot":
        monkeypatch.setattr(log_dir, "boot_id", lambda: b"another boot of ")
    else:
        remove_index(lost)
    with kstore.open_log(lost, shared=shared) as log:
        log.append_many(NEW)
        assert drain(log.queue("mailer")) == NEW
        cursor = log.cursor("reader")
        assert [record.value for record in cursor.poll()] == NEW
        cursor.close()


def test_a_cursor_in_use_is_left_as_it_is(lost: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open_log(lost, read_only=True) as reader:
        cursor = reader.cursor("reader")
        cursor.seek(3)
        remove_index(lost)
        with kstore.open_log(lost) as log:
            assert log.cursor("reader").committed == 10
        cursor.close()


def test_a_damaged_queue_does_not_keep_the_log_from_opening(
    lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lost / "log-0" / "queue.mailer").write_bytes(b"?" * 8192)
    remove_index(lost)
    with kstore.open_log(lost) as log:
        assert log.append(b"x") == 5
        assert log.cursor("reader").committed == 5


def _work_after(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, log: Log) -> None:
    """The others continue to work after each call of this function."""
    call = getattr(module, name)

    def late(*arguments: object) -> object:
        result = call(*arguments)
        _work(log)
        return result

    monkeypatch.setattr(module, name, late)


def test_a_snapshot_has_positions_from_before_its_logs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log(tmp_path / "data") as log:
        _work(log)
        _work_after(monkeypatch, snapshot, "_capture", log)
        log.snapshot(tmp_path / "copy")
    with kstore.open_log(tmp_path / "copy", read_only=True) as copy:
        assert copy.log_end_offset == 5
        assert queue_floors(copy) == [5]
        assert copy.cursor("reader").committed == 5


def test_a_backup_has_positions_from_before_its_logs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log(tmp_path / "data") as log:
        _work(log)
        _work_after(monkeypatch, creating, "capture", log)
        folder = BackupFolder(tmp_path / "backups")
        source = source_of_folders([str(tmp_path / "data")])
        manifest = creating.create(folder, source, "0", lambda _: None)
        restore(folder, manifest, tmp_path / "copy", lambda _, __: None, lambda _: None)
    with kstore.open_log(tmp_path / "copy", read_only=True) as copy:
        assert copy.log_end_offset == 10
        assert queue_floors(copy) == [10]
        assert copy.cursor("reader").committed == 10


def test_a_cut_of_a_queue_is_durable_before_new_records(
    lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a second power loss would bring back what was taken."""
    remove_index(lost)
    synced: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    with kstore.open_log(lost) as log:
        assert "queue.mailer" in synced
        synced.clear()
        log.append_many(NEW)
        drain(log.queue("mailer"))
        log.truncate(5)
        assert "queue.mailer" in synced


@pytest.mark.parametrize("bad", ["queue.not a name", "queue.folder", "cursor"])
def test_a_bad_file_does_not_keep_the_others_from_being_checked(
    lost: Path, bad: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if bad == "queue.folder":
        (lost / "log-0" / bad).mkdir()
    elif bad == "cursor":
        (cursor,) = (lost / ".cursors").iterdir()
        newer = cursor.with_name("log-0:newer")
        newer.write_bytes(b"KCUS" + cursor.read_bytes()[4:])
    else:
        (lost / "log-0" / bad).write_bytes(b"?")
    remove_index(lost)
    with kstore.open_log(lost) as log:
        log.append_many(NEW)
        assert drain(log.queue("mailer")) == NEW
        assert log.cursor("reader").committed == 5
    assert "was not checked" in caplog.text


def test_a_cursor_that_a_group_took_over_is_left_to_the_group(
    lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log(lost) as log:
        log.log_dir.committed_offsets.give_to_groups()
        log.log_dir.committed_offsets._groups.commit("reader", log.topic_partition, None)
        assert log.cursor("reader").committed is None
    remove_index(lost)
    with kstore.open_log(lost) as log:
        assert log.cursor("reader").committed is None
