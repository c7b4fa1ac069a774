"""A log that is closed, deleted or moved aside while another thread compacts it: neither this log
nor the next one with its name loses records.
"""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import kstore
from kstore.env import SystemEnv
from kstore.log import LogClosedError, LogDir, LogStorageError
from kstore.types import TopicPartition
from tests.log.retention.swap_model import (
    LATER,
    NOW,
    SETTINGS,
    CountingFileSystem,
    Model,
    leftovers,
)

STEPS = [
    ("sync", 0), ("replace", 0), ("fsync_dir", 0), ("unlink", 0), ("unlink", 1), ("fsync_dir", 1),
    ("replace", 1), ("sync", 2),
]  # fmt: skip
PLACE = TopicPartition("log", 0)


def compact_with(path: Path, step: tuple[str, int], work: Callable[[LogDir], None]) -> None:
    """Compact a log, and let another thread do ``work`` from a step on."""
    fs = CountingFileSystem(str(path))
    with kstore.open_log_dir(path, env=SystemEnv(fs=fs), **SETTINGS) as log_dir:
        log = log_dir.log("log")
        thread = threading.Thread(target=work, args=(log_dir,))

        def begin() -> None:
            thread.start()
            thread.join(0.2)  # it may have to wait for the swap

        fs.do_at(*step, begin)
        with suppress(LogClosedError):
            log.compact(LATER)
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_log_that_is_closed_and_opened_again_has_everything(
    prepared: tuple[Path, Model], tmp_path: Path, step: tuple[str, int]
) -> None:
    path = tmp_path / "log"
    shutil.copytree(prepared[0], path)
    model = prepared[1].copy()

    def work(log_dir: LogDir) -> None:
        log_dir.close_log(log_dir.log("log"))
        model.append(log_dir.log("log"), b"k2", b"in the log that was opened again")
        log_dir.log("log").compact(LATER + 1)
        model.check(log_dir.log("log"))

    compact_with(path, step, work)
    model.check_folder(path, without_index=False)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_log_dir_that_is_closed_and_opened_again_has_everything(
    prepared: tuple[Path, Model], tmp_path: Path, step: tuple[str, int]
) -> None:
    path = tmp_path / "log"
    shutil.copytree(prepared[0], path)
    model = prepared[1].copy()

    def work(log_dir: LogDir) -> None:
        log_dir.close()
        with kstore.open_log(path, **SETTINGS) as log:
            model.append(log, b"k2", b"in the log that was opened again")
            log.compact(LATER + 1)
            model.check(log)

    compact_with(path, step, work)
    model.check_folder(path, without_index=False)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", [LogDir.delete, LogDir.put_aside])
def test_the_next_log_of_its_name_keeps_its_segments(
    prepared: tuple[Path, Model],
    tmp_path: Path,
    step: tuple[str, int],
    way: Callable[[LogDir, TopicPartition], object],
) -> None:
    path = tmp_path / "log"
    shutil.copytree(prepared[0], path)
    model = Model()

    def work(log_dir: LogDir) -> None:
        way(log_dir, PLACE)
        new = log_dir.log("log")
        for number in range(60):
            model.append(new, b"n%d" % (number % 40), b"new %d" % number)
        new.roll()
        new.compact(NOW)

    compact_with(path, step, work)
    model.check_folder(path, without_index=False)


def test_a_swap_that_could_not_be_finished_is_left_to_the_next_start(
    prepared: tuple[Path, Model], tmp_path: Path
) -> None:
    path = tmp_path / "log"
    shutil.copytree(prepared[0], path)
    fs = CountingFileSystem(str(path))
    with kstore.open_log_dir(path, env=SystemEnv(fs=fs), **SETTINGS) as log_dir:
        log = log_dir.log("log")
        fs.fail("unlink", errno.EIO, after=1)
        for _ in range(20):
            fs.fail("unlink", errno.EIO)
        with pytest.raises(LogStorageError):
            log.compact(LATER)
        assert leftovers(path)
        log.close()
        fs.faults.clear()
        with pytest.raises(LogClosedError), log.local.swapping:
            pass
        prepared[1].check(log_dir.log("log"))
        assert not leftovers(path)
    prepared[1].check_folder(path, without_index=True)
