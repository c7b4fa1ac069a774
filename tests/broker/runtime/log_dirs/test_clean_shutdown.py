"""broker/runtime/log_dirs/clean_shutdown.py: which life ended with everything on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.broker.runtime.log_dirs.clean_shutdown import NO_EPOCH, mark_clean, read_ended_epoch


def folders(tmp_path: Path) -> list[str]:
    made = [tmp_path / "one", tmp_path / "two"]
    for each in made:
        each.mkdir(exist_ok=True)
    return list(map(str, made))


def test_all_log_dirs_name_the_life_that_ended_cleanly(tmp_path: Path) -> None:
    paths = folders(tmp_path)
    assert read_ended_epoch(paths) == NO_EPOCH
    mark_clean(paths, 17)
    assert read_ended_epoch(paths) == 17
    written = (tmp_path / "one" / ".kafka_cleanshutdown").read_text()
    assert written == '{"version":0,"brokerEpoch":17}'  # as a Kafka 4.3.1 writes it


def test_a_log_dir_that_was_not_closed_counts(tmp_path: Path) -> None:
    paths = folders(tmp_path)
    mark_clean(paths, 17)
    mark_clean(paths[:1], 21)
    assert read_ended_epoch(paths) == NO_EPOCH
    (tmp_path / "two" / ".kafka_cleanshutdown").unlink()
    assert read_ended_epoch(paths) == NO_EPOCH


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"brokerEpoch":"x"}', "\x00"])
def test_a_damaged_mark_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(text)
    assert read_ended_epoch([str(tmp_path)]) == NO_EPOCH


def test_a_log_dir_that_is_gone_is_not_marked(tmp_path: Path) -> None:
    mark_clean([str(tmp_path / "gone")], 17)
    assert read_ended_epoch([str(tmp_path / "gone")]) == NO_EPOCH
