"""broker/runtime/log_dirs/replica_moves.py and log_manager.py: a move whose last step both log dirs
refuse.
"""

from __future__ import annotations

from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.log_dirs import dir_calls, future_logs, log_manager
from kstore.log import LogDir
from tests.beside.waiting import reached
from tests.broker.runtime.log_dirs.test_replica_moves import VALUES, Moving, moving, refuse
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
