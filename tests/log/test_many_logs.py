"""Work on many logs of a log dir at once takes one transaction of the index, not one per log; and
large files are freed in steps.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import kstore
from kstore.env import SystemEnv, SystemFileSystem
from kstore.log import LogDir
from kstore.log.errors import OffsetOutOfRangeError
from kstore.log.segments import removal
from kstore.types import TopicPartition

LOGS = 20


def filled(opened: LogDir) -> list[TopicPartition]:
    """So many logs with three records each."""
    places = [TopicPartition("t", index) for index in range(LOGS)]
    for place in places:
        opened.log(*place).append_many([b"a", b"b", b"c"])
    return places


def counted(opened: LogDir, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The transactions that change the index from now on."""
    changes: list[object] = []
    change = opened.index.change

    def count(do: object) -> object:
        changes.append(do)
        return change(do)  # type: ignore[arg-type]

    monkeypatch.setattr(opened.index, "change", count)
    return changes


def test_logs_that_are_deleted_together_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log_dir(tmp_path) as opened:
        places = filled(opened)
        changes = counted(opened, monkeypatch)
        taken = opened.take_away(*places, TopicPartition("not-there", 0))
        assert len(changes) == 1
        assert len(taken) == LOGS
        assert opened.partitions() == []
        for folder in taken:
            opened.remove_taken(folder)
        assert not list(tmp_path.glob("t-*"))


def test_a_log_with_the_longest_name_can_be_deleted_and_renamed(tmp_path: Path) -> None:
    longest = "x" * 249
    with kstore.open_log_dir(tmp_path) as opened:
        for partition in (0, 12345):
            opened.log(longest, partition).append(b"a")
        taken = opened.take_away(TopicPartition(longest, 0))
        assert [Path(path).exists() for path in taken] == [True]
        opened.put_aside(TopicPartition(longest, 12345))
        assert opened.partitions() == []
    with kstore.open_log_dir(tmp_path) as opened:
        assert opened.partitions() == []
        stray = tmp_path.glob("x*")
        assert [path.name.endswith("-stray") for path in stray] == [True], "one is deleted"


def test_records_that_are_deleted_together_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log_dir(tmp_path) as opened:
        places = filled(opened)
        changes = counted(opened, monkeypatch)
        rows = [(opened.log(*place), 2) for place in places]
        rows[3] = (rows[3][0], 99)
        problems = opened.delete_before(rows)
        assert len(changes) == 1
        assert isinstance(problems.pop(3), OffsetOutOfRangeError)
        assert problems == [None] * (LOGS - 1)
    with kstore.open_log_dir(tmp_path) as opened:
        starts = [opened.log(*place).log_start_offset for place in places]
        assert starts == [2, 2, 2, 0, *[2] * (LOGS - 4)]


def test_a_large_file_is_cut_step_by_step_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int]] = []

    class Recorded(SystemFileSystem):
        def truncate(self, path: str, size_bytes: int) -> None:
            steps.append((Path(path).name, size_bytes))
            super().truncate(path, size_bytes)

    monkeypatch.setattr(removal, "STEP_BYTES", 1000)
    with kstore.open_log_dir(tmp_path, env=SystemEnv(fs=Recorded())) as opened:
        opened.log("t").append(bytes(2500), timestamp=1)
        [file] = (tmp_path / "t-0").glob("*.log")
        size = file.stat().st_size
        opened.delete(TopicPartition("t", 0))
    assert {name for name, _ in steps} == {file.name}
    sizes = [size, *(at for _, at in steps), 0]
    assert all(0 < before - after <= 1000 for before, after in pairwise(sizes))
