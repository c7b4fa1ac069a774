"""When logs are cleaned and deleted: intervals and rates, also if they change at run time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.broker.runtime.dir_threads import DirThreads
from kstore.broker.runtime.log_dirs import maintenance
from kstore.config import BrokerConfig
from kstore.log import Log


@pytest.fixture
def dirty_log(tmp_path: Path) -> Iterator[Log]:
    """A compacted log whose older segments repeat the same key."""
    with kstore.open_log(tmp_path, cleanup_policy="compact", segment_bytes=1000) as log:
        for number in range(100):
            log.append(b"value %d" % number, b"key", timestamp=1)
        yield log


def slept(
    log: Log, config: BrokerConfig, count: int, monkeypatch: pytest.MonkeyPatch, then: Any = None
) -> list[float]:
    """The first pauses of the cleaner."""
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if then is not None:
            then()
        if len(rests) == count:
            raise asyncio.CancelledError

    log_dir: Any = log.log_dir
    log_manager: Any = SimpleNamespace(home=lambda key: log_dir, dirs=[log_dir])

    async def run() -> None:
        dirs = DirThreads(asyncio.get_running_loop(), pytest.fail)
        node: Any = SimpleNamespace(
            config=config, now_ms=lambda: 10**13, report=pytest.fail, dirs=dirs
        )
        runner = maintenance.Maintenance(node, log_manager)
        monkeypatch.setattr(maintenance.asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await runner._compact(log_dir)
        runner.stop()
        dirs.close()

    asyncio.run(run())
    return rests


def test_the_cleaner_rests_for_the_bytes_it_moved(
    dirty_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dirty_log.size_bytes
    config = BrokerConfig.load(None, {"log.cleaner.io.max.bytes.per.second": "1"}, {})
    backoff, rest = slept(dirty_log, config, 2, monkeypatch)
    assert backoff == 15
    assert dirty_log.size_bytes < before
    assert before < rest + 60 <= before + dirty_log.size_bytes + 60


def test_a_cleaner_without_a_limit_does_not_rest(
    dirty_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slept(dirty_log, BrokerConfig.load(None, {}, {}), 2, monkeypatch) == [15, 0]


def test_a_changed_backoff_holds_from_the_next_round(
    dirty_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig.load(None, {}, {})

    def change() -> None:
        config.set_dynamic({"log.cleaner.backoff.ms": "2000"}, {})

    assert slept(dirty_log, config, 3, monkeypatch, change) == [15, 0, 2]
