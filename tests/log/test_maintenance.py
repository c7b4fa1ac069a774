"""The maintenance of a log dir: which of its logs it saves, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.log_dir import LogDir
from kstore.log.maintenance import Maintenance


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[LogDir]:
    with kstore.open_log_dir(tmp_path) as made:
        made.maintenance.stop()
        yield made


class Saving(Maintenance):
    """Only remembers what it would save, and fails on request. No thread runs."""

    def __init__(self, log_dir: LogDir) -> None:
        super().__init__(log_dir.state, lambda: ())
        self.saved: list[Any] = []
        self.problem: Exception | None = None

    def _start(self, name: str, run: Any) -> None:
        pass

    def save(self, logs: Any) -> dict[Any, Any]:
        self.saved += logs
        if self.problem is not None:
            raise self.problem
        return {}


class FakeLog:
    """An open log; on request, it lets another thread note a log."""

    path = "log-0"

    def __init__(self, maintenance: Maintenance, notes: FakeLog | None = None) -> None:
        self.maintenance = maintenance
        self.notes: Any = notes

    @property
    def closed(self) -> bool:
        if self.notes is not None:
            self.maintenance.note_dirty(self.notes)
        return False


def test_logs_are_saved_in_the_order_in_which_they_changed(log_dir: LogDir) -> None:
    maintenance = Saving(log_dir)
    logs: list[Any] = [FakeLog(maintenance) for _ in range(100)]
    for log in [*logs[::-1], *logs]:
        maintenance.note_dirty(log)
    maintenance.tick()
    assert maintenance.saved == logs[::-1]
    assert not any(maintenance.is_dirty(log) for log in logs)


def test_a_log_that_changes_while_others_are_looked_at_is_saved_the_next_time(
    log_dir: LogDir,
) -> None:
    maintenance = Saving(log_dir)
    second: Any = FakeLog(maintenance)
    first: Any = FakeLog(maintenance, second)
    maintenance.note_dirty(first)
    maintenance.tick()
    assert maintenance.saved == [first]
    maintenance.tick()
    assert maintenance.saved == [first, second]


def test_what_could_not_be_saved_is_saved_the_next_time(log_dir: LogDir) -> None:
    maintenance = Saving(log_dir)
    log: Any = FakeLog(maintenance)
    maintenance.note_dirty(log)
    maintenance.problem = OSError("the disk is full")
    with pytest.raises(OSError, match="full"):
        maintenance.tick()
    maintenance.problem = None
    maintenance.tick()
    assert maintenance.saved == [log, log]
