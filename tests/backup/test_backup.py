"""Backups of an embedded log dir: what is copied, what is refused, and what comes back."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import kstore
from kstore.backup import create as creating
from kstore.backup import objects
from kstore.backup.create import create
from kstore.backup.errors import BackupError
from kstore.backup.folder import BackupFolder
from kstore.backup.manifest import Manifest
from kstore.backup.restore import restore, verify
from kstore.cli.backup.sources import source_of_folders
from kstore.log import Log
from kstore.types import TopicPartition


def filled(path: Path, first: int = 0, last: int = 1000) -> None:
    """A log of several segments, or more records in it."""
    with kstore.open_log(path, topic="orders", segment_bytes=2000) as log:
        for number in range(first, last, 20):
            log.append_many([b"%d" % each for each in range(number, number + 20)])


def backup(folder: BackupFolder, data: Path) -> Manifest:
    return create(folder, source_of_folders([str(data)]), "0", lambda _: None)


def no_tree(path: str, nodes: Mapping[str, bytes]) -> None:
    raise AssertionError((path, nodes))


def put_back(folder: BackupFolder, target: Path, name: str | None = None) -> None:
    restore(folder, folder.manifest(name), target, no_tree, lambda _: None)


def values(path: Path) -> list[bytes | None]:
    with kstore.open_log(path, topic="orders", read_only=True) as log:
        return [record.value for record in log.records()]


def numbers(last: int) -> list[bytes]:
    return [b"%d" % each for each in range(last)]


@pytest.fixture
def folder(tmp_path: Path) -> BackupFolder:
    filled(tmp_path / "data")
    return BackupFolder(tmp_path / "backups")


def test_what_was_there_comes_back(tmp_path: Path, folder: BackupFolder) -> None:
    with kstore.open_log(tmp_path / "data", topic="orders", segment_bytes=2000) as log:
        log.cursor("mailer").commit(7)
        log.delete_before(130)
        assert len(log.segments) > 5
        made = backup(folder, tmp_path / "data")
        log.append(b"later")
        start, topic_id = log.log_start_offset, log.topic_id
    verify(folder, made, lambda _: None)
    put_back(folder, tmp_path / "new")
    with kstore.open_log(tmp_path / "new", topic="orders") as log:
        assert [record.value for record in log.records()] == numbers(1000)[start:]
        assert (log.log_start_offset, log.topic_id) == (start, topic_id)
        assert log.cursor("mailer").committed == 7
        assert log.append(b"more") == 1000


def test_the_next_one_copies_only_what_is_new(tmp_path: Path, folder: BackupFolder) -> None:
    data = tmp_path / "data"
    first = backup(folder, data)
    assert backup(folder, data).new_bytes == 0
    filled(data, 1000, 1100)
    third = backup(folder, data)
    assert third.new_bytes == third.bytes - first.bytes > 0
    for name, count in ((first.name, 1000), (third.name, 1100)):
        put_back(folder, tmp_path / name, name)
        assert values(tmp_path / name) == numbers(count)


def test_segments_that_were_compacted_are_copied_anew(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", BackupFolder(tmp_path / "backups")
    options = {"segment_bytes": 2000, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
    with kstore.open_log(data, topic="orders", **options) as log:
        for number in range(400):
            log.append(b"%d" % number, key=b"%d" % (number % 7))
        first = backup(folder, data)
        log.compact()
        second = backup(folder, data)
        left = [(each.offset, each.value) for each in log.records()]
    assert len(left) < 400
    assert second.bytes < first.bytes
    put_back(folder, tmp_path / "new")
    with kstore.open_log(tmp_path / "new", topic="orders", read_only=True) as log:
        assert [(each.offset, each.value) for each in log.records()] == left


def test_deleting_one_keeps_what_the_others_need(tmp_path: Path, folder: BackupFolder) -> None:
    first = backup(folder, tmp_path / "data")
    filled(tmp_path / "data", 1000, 1100)
    second = backup(folder, tmp_path / "data")
    filled(tmp_path / "data", 1100, 1200)
    third = backup(folder, tmp_path / "data")
    with folder.writing():
        assert folder.delete(third.name) == third.new_bytes
        assert folder.delete(first.name) == 0
    assert folder.names() == [second.name]
    verify(folder, second, lambda _: None)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, folder: BackupFolder) -> None:
    backup(folder, tmp_path / "data")
    with pytest.raises(BackupError, match="is not empty: restore to a new folder"):
        put_back(folder, tmp_path / "data")
    with pytest.raises(BackupError, match="is not empty, and has no backups"):
        backup(BackupFolder(tmp_path), tmp_path / "data")
    with pytest.raises(BackupError, match="has no backups: create one"):
        BackupFolder(tmp_path).names()


def test_a_torn_backup_is_refused(tmp_path: Path, folder: BackupFolder) -> None:
    good = backup(folder, tmp_path / "data")
    filled(tmp_path / "data", 1000, 1100)
    torn = backup(folder, tmp_path / "data")
    path = folder.path / f"{torn.name}.backup"
    os.truncate(path, path.stat().st_size - 3)
    with pytest.raises(BackupError, match=r"torn or damaged: its checksum is wrong"):
        put_back(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    put_back(folder, tmp_path / "new", good.name)
    assert values(tmp_path / "new") == numbers(1000)
    assert backup(folder, tmp_path / "data").bytes == torn.bytes


def test_one_of_a_newer_version_is_refused(tmp_path: Path, folder: BackupFolder) -> None:
    made = backup(folder, tmp_path / "data")
    path = folder.path / f"{made.name}.backup"
    head, _, body = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps(json.loads(head) | {"kstore_backup": 2}).encode() + b"\n" + body)
    with pytest.raises(BackupError, match="format 2, and this version of kstore reads format 1"):
        folder.manifest()


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_part_is_refused(tmp_path: Path, folder: BackupFolder, damage: str) -> None:
    made = backup(folder, tmp_path / "data")
    part = made.partitions[0].segments[2].parts[0]
    path = folder.pool.path / part.object[:2] / part.object[2:]
    if damage == "flipped":
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        os.truncate(path, part.bytes - 1)
    else:
        path.unlink()
    with pytest.raises(BackupError, match=r"damaged|missing"):
        verify(folder, made, lambda _: None)
    with pytest.raises(BackupError, match=r"damaged|missing"):
        put_back(folder, tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["backups", "data"]


def test_a_damaged_source_is_told(tmp_path: Path, folder: BackupFolder) -> None:
    made = backup(folder, tmp_path / "data")
    segment = sorted((tmp_path / "data" / "orders-0").glob("*.log"))[-1]
    filled(tmp_path / "data", 1000, 1100)
    size = segment.stat().st_size
    content = bytearray(segment.read_bytes())
    content[size - 5] ^= 1
    segment.write_bytes(content)
    with pytest.raises(BackupError, match=r"is damaged at byte \d+ .*kstore log verify"):
        backup(folder, tmp_path / "data")
    assert folder.names() == [made.name]
    verify(folder, made, lambda _: None)


@pytest.mark.parametrize("word", ["backup", "restore"])
def test_a_full_disk_is_told(
    tmp_path: Path, folder: BackupFolder, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backup(folder, tmp_path / "data")
    filled(tmp_path / "data", 1000, 1100)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    if word == "backup":
        with pytest.raises(BackupError, match="earlier backups are intact"):
            backup(folder, tmp_path / "data")
    else:
        with pytest.raises(BackupError, match="nothing was restored"):
            put_back(folder, tmp_path / "new")
    monkeypatch.undo()
    assert folder.names() == [made.name]
    assert sorted(os.listdir(tmp_path)) == ["backups", "data"]
    verify(folder, made, lambda _: None)


def test_two_do_not_write_at_one_time(tmp_path: Path, folder: BackupFolder) -> None:
    with folder.writing(), pytest.raises(BackupError, match="another process is writing"):
        backup(folder, tmp_path / "data")


def test_ctrl_c_leaves_earlier_backups_whole(tmp_path: Path, folder: BackupFolder) -> None:
    made = backup(folder, tmp_path / "data")
    filled(tmp_path / "data", 1000, 2000)
    asked = []

    def interrupt(size: int) -> None:
        asked.append(size)
        if len(asked) == 3:
            raise KeyboardInterrupt

    source = source_of_folders([str(tmp_path / "data")])
    with pytest.raises(KeyboardInterrupt):
        create(folder, source, "0", interrupt)
    assert folder.names() == [made.name]
    verify(folder, made, lambda _: None)
    again = backup(folder, tmp_path / "data")
    assert not (folder.pool.path / objects.UNFINISHED).exists()
    verify(folder, again, lambda _: None)


def test_a_transaction_over_logs_is_in_all_of_them_or_in_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes while the ends are noted has them noted again."""
    data, folder = tmp_path / "data", BackupFolder(tmp_path / "backups")
    with kstore.open_log_dir(data) as log_dir:
        logs: list[Log] = [log_dir.log("a"), log_dir.log("b")]
        noted = []

        def capture(*arguments: object) -> object:
            captured = real(*arguments)  # type: ignore[arg-type]
            noted.append(captured)
            if len(noted) == 3:  # one of the first two is recorded; two were read before
                with log_dir.transaction() as transaction:
                    for log in logs:
                        transaction.append(log, b"both")
            return captured

        real = creating.capture
        monkeypatch.setattr(creating, "capture", capture)
        made = backup(folder, data)
        assert len(noted) > 4
    assert [each.end for each in made.partitions] == [1, 1]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_topic_that_is_deleted_meanwhile_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    data, folder = tmp_path / "data", BackupFolder(tmp_path / "backups")
    with kstore.open_log_dir(data) as log_dir:
        for name in ("a", "b"):
            log_dir.log(name).append(b"value")
        asked = []

        def capture(*arguments: object) -> object:
            captured = real(*arguments)  # type: ignore[arg-type]
            asked.append(captured)
            if len(asked) == at:
                log_dir.delete(TopicPartition("b", 0))
            return captured

        real = creating.capture
        monkeypatch.setattr(creating, "capture", capture)
        made = backup(folder, data)
    assert [each.key for each in made.partitions] == [TopicPartition("a", 0)]
    verify(folder, made, lambda _: None)


def test_what_a_killed_run_stored_is_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = objects.ObjectPool(tmp_path / "objects")
    pool.make()
    part = pool.put([b"x"])  # and then it was killed
    synced: list[Path] = []
    monkeypatch.setattr(objects, "sync_dir", synced.append)
    after = objects.ObjectPool(pool.path)
    assert after.put([b"x"]) == part
    after.sync()
    assert set(synced) == {pool.path, pool.path / part.object[:2]}
    assert after.written_bytes == 0
