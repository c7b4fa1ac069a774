"""broker/runtime/log_dirs/replica_moves.py: a move whose last step both log dirs refuse."""

from __future__ import annotations

from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.log_dirs import dir_calls, future_logs, log_manager
from kstore.env import SystemFileSystem
from kstore.errors import ErrorCode
from kstore.log import LogDir
from tests.beside.waiting import reached
from tests.broker.runtime.log_dirs.test_replica_moves import KEY, VALUES, Moving, moving, refuse
from tests.log.handling import values

__all__ = ["moving"]


def test_appends_wait_while_the_next_start_would_serve_the_old_log(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the old log can be removed nor the mark of the copy."""
    is_broken = True

    def unmark(*what: Any) -> None:
        if is_broken:
            refuse()
        future_logs.unmark(*what)

    async def story() -> None:
        nonlocal is_broken
        monkeypatch.setattr(dir_calls, "REPEATS_AFTER_S", 0.001)
        monkeypatch.setattr(LogDir, "take_away", refuse)
        monkeypatch.setattr(log_manager, "unmark", unmark)
        ended: list[Any] = []
        moving.begin(1)
        await moving.serves_from(1)
        code, _ = moving.partition.append_later(build_batch([b"newest"]), ended.append)
        assert code == 0
        await moving.calls_run(0, 1)
        assert moving.has_mark(1)
        assert ended == []
        assert "can't be written" in moving.told[0]
        is_broken = False
        await reached(lambda: ended)
        assert ended[0].base_offset == len(VALUES)

    moving.loop.run_until_complete(story())
    assert not moving.has_mark(1)
    assert values(moving.partition.log) == [*VALUES, b"newest"]


def test_appends_do_not_wait_for_ever_and_none_is_taken_that_the_next_start_would_drop(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After many attempts the log dir fails, and its partitions with it: only then are the appends
    that wait refused.
    """

    async def story() -> None:
        monkeypatch.setattr(dir_calls, "REPEATS_AFTER_S", 0.001)
        monkeypatch.setattr(LogDir, "take_away", refuse)
        monkeypatch.setattr(log_manager, "unmark", refuse)
        ended: list[Any] = []
        moving.begin(1)
        await moving.serves_from(1)
        copy = moving.partition.log
        code, _ = moving.partition.append_later(build_batch([b"newest"]), ended.append)
        assert code == 0
        await reached(lambda: moving.dirs[1].failed)
        assert moving.dirs[1].failed.startswith(
            "[Errno 5] t-0 has moved here, and neither its old log nor the mark of its copy can be "
            "removed: "
        )
        moving.log_manager.failed[moving.dirs[1].path] = moving.dirs[1].failed
        await reached(lambda: len(moving.told) == 2)
        assert "the next start serves the old log, which has all records" in moving.told[1]
        await moving.calls_run(0, 1)
        assert ended == []  # the partition could still acknowledge it
        moving.partition.fail()
        await reached(lambda: ended)
        assert ended[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert copy.log_end_offset == len(VALUES)

    moving.loop.run_until_complete(story())
    monkeypatch.undo()
    with moving.started() as again:
        assert again._homes[KEY].path == moving.dirs[0].path


def test_a_mark_that_stays_is_told_and_the_old_log_goes(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(log_manager, "unmark", refuse)
        moving.begin(1)
        await reached(lambda: moving.told)
        assert moving.told[0].startswith(
            f"t-0 is served from {moving.dirs[1].path}, but the mark of its copy can't be removed: "
        )
        assert moving.told[0].endswith("; the next start removes it")
        await reached(lambda: not moving.moves.in_progress())
        assert not moving.is_in(0)

    moving.loop.run_until_complete(story())
    monkeypatch.undo()
    with moving.started():
        assert not moving.has_mark(1)


def test_a_mark_is_gone_durably_although_the_attempt_before_failed_in_between(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it could be back after a power loss, with appends in the copy."""
    synced: list[str] = []
    real = SystemFileSystem.fsync_dir
    broken: list[bool] = []

    def fsync_dir(fs: SystemFileSystem, path: str) -> None:
        if broken == [True]:
            broken.append(False)
            refuse()
        real(fs, path)
        synced.append(path)

    def unmark(*what: Any) -> None:
        if not broken:
            broken.append(True)
        synced.clear()
        future_logs.unmark(*what)

    async def story() -> None:
        monkeypatch.setattr(dir_calls, "REPEATS_AFTER_S", 0.001)
        monkeypatch.setattr(LogDir, "take_away", refuse)
        monkeypatch.setattr(log_manager, "unmark", unmark)
        monkeypatch.setattr(SystemFileSystem, "fsync_dir", fsync_dir)
        moving.begin(1)
        await moving.serves_from(1)
        await reached(lambda: not moving.moves.in_progress())
        assert synced == [str(moving.folders[1] / "t-0")]

    moving.loop.run_until_complete(story())
