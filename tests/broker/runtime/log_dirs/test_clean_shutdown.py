"""broker/runtime/log_dirs/clean_shutdown.py: whether the last run ended with everything on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kstore.broker.runtime.log_dirs.clean_shutdown import NO_EPOCH, mark_clean, read_ended_epoch
from kstore.log import open_log_dir
from kstore.log.log_dir_lock import LogDirLock
from tests.broker.runtime.replication.in_cluster import on_a_loop, opened


def folders(tmp_path: Path) -> list[str]:
    made = [tmp_path / "one", tmp_path / "two"]
    for each in made:
        each.mkdir(exist_ok=True)
        (each / ".lock").touch()
    return list(map(str, made))


def test_all_log_dirs_name_the_life_that_ended_cleanly(tmp_path: Path) -> None:
    paths = folders(tmp_path)
    assert read_ended_epoch(paths) == NO_EPOCH
    mark_clean(paths, 17)
    assert read_ended_epoch(paths) == 17
    written = (tmp_path / "one" / ".kafka_cleanshutdown").read_text()
    assert written == '{"version":0,"brokerEpoch":17}'  # as Kafka 4.3.1 writes it


def test_a_log_dir_that_was_not_closed_counts(tmp_path: Path) -> None:
    paths = folders(tmp_path)
    mark_clean(paths, 17)
    mark_clean(paths[:1], 21)
    assert read_ended_epoch(paths) == NO_EPOCH
    (tmp_path / "two" / ".kafka_cleanshutdown").unlink()
    assert read_ended_epoch(paths) == NO_EPOCH


@pytest.mark.parametrize("killed", [True, False])
def test_a_mark_holds_until_somebody_has_the_log_dir_who_may_know_nothing_of_marks(
    tmp_path: Path, *, killed: bool
) -> None:
    for path in folders(tmp_path):
        LogDirLock(path).give_back()
    mark_clean(folders(tmp_path), 17)
    other = LogDirLock(folders(tmp_path)[0])
    if not killed:
        other.give_back()
    assert read_ended_epoch(folders(tmp_path)) == NO_EPOCH


@on_a_loop
async def test_a_broker_believes_the_mark_of_its_last_life_unless_there_was_another(
    folder: Path,
) -> None:
    async with opened(folder) as broker:
        broker.membership.ended_epoch = 17
    for _ in range(2):  # the first of them ends before it registers
        async with opened(folder) as broker:
            assert broker.membership.ended_epoch == 17
    with open_log_dir(folder / "data"):
        pass
    async with opened(folder) as broker:
        assert broker.membership.ended_epoch == NO_EPOCH


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"brokerEpoch":"x"}', "\x00"])
def test_a_damaged_mark_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ".lock").touch()
    mark_clean([str(tmp_path)], 17)
    path, stamp = tmp_path / ".kafka_cleanshutdown", (tmp_path / ".lock").stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(stamp, stamp))
    assert read_ended_epoch([str(tmp_path)]) == NO_EPOCH


def test_a_log_dir_that_is_gone_is_not_marked(tmp_path: Path) -> None:
    mark_clean([str(tmp_path / "gone")], 17)
    assert read_ended_epoch([str(tmp_path / "gone")]) == NO_EPOCH
