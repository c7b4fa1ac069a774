"""What the thread of a log dir does while it removes the files of deleted logs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import kstore
from kstore.broker.runtime.dir_threads import DirThreads
from kstore.broker.runtime.log_dirs.dir_calls import Taken
from kstore.broker.runtime.log_dirs.removals import Removals
from kstore.broker.runtime.node import Node
from kstore.log.segments import removal
from kstore.types import TopicPartition


def test_other_calls_run_between_the_steps_of_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "STEP_BYTES", 1000)
    told: list[str] = []

    async def story() -> None:
        dirs = DirThreads(asyncio.get_running_loop(), told.append)
        with kstore.open_log_dir(tmp_path) as opened:
            opened.log("t").append(bytes(2500), timestamp=1)
            [folder] = map(Path, opened.take_away(TopicPartition("t", 0)))
            [file] = folder.glob("*.log")
            size = file.stat().st_size
            removals = Removals(cast("Node", SimpleNamespace(dirs=dirs, report=told.append)))
            removals.begin([Taken(opened, [str(folder)])])
            await asyncio.sleep(0)  # its first step is in the thread's queue
            left = await dirs.run(opened.path, "looking", lambda: file.stat().st_size)
            assert size - 1000 <= left < size
            while removals._running:
                await asyncio.wait(removals._running)
            assert not folder.exists()
        dirs.close()

    asyncio.run(story())
    assert told == []
