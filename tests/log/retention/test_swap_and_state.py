"""A log's producers and leader epochs after a kill or a power cut during a compaction, or soon
after it.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import kstore
import kstore.log.log_dir
from kstore.log import Log
from kstore.record import build_batch
from tests.log.retention.failing_files import is_killed
from tests.log.retention.swap_model import LATER, NOW, SETTINGS, CountingFileSystem, open_on
from tests.record.producer_batches import produced

RECORDS = 40
PRODUCERS = {number // 5 + 1: number for number in range(RECORDS)}
EPOCHS = [*((number // 3 + 1, number) for number in range(0, RECORDS, 3)), (20, RECORDS)]


def fill(log: Log, *, flush_at: int) -> None:
    """Append records of each producer and epoch; a flush is followed by a checkpoint."""
    for number in range(RECORDS):
        key = b"k%d" % (number if number % 5 == 0 else number % 7 + 100)
        batch = produced(
            (key, b"v%d" % number), producer=number // 5 + 1, sequence=number % 5, timestamp=NOW
        )
        log.append_batches(bytearray(batch), leader_epoch=number // 3 + 1)
        if number == flush_at:
            log.flush()
            log.log_dir.maintenance.tick()
    log.roll()
    last = build_batch([(b"x", b"active")], timestamp=NOW)
    log.append_batches(bytearray(last), leader_epoch=20)


def killed_at(path: Path, step: int, flush_at: int) -> bool:
    """Fill and compact a log, with kill -9 before a step or at the end; True: before the step."""

    def run() -> None:
        fs = CountingFileSystem(str(path))
        log = open_on(fs)
        log.log_dir.maintenance.stop()
        fill(log, flush_at=flush_at)
        log.compact(NOW)
        fs.seen.clear()
        fs.kill_at = step
        log.compact(LATER)
        (path / "compacted").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    assert is_killed(run)
    return not (path / "compacted").exists()


@pytest.mark.slow
@pytest.mark.parametrize("flush_at", [-1, 11, pytest.param(13, marks=pytest.mark.thorough)])
def test_no_producer_and_no_epoch_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_at: int
) -> None:
    path, copy = tmp_path / "log", tmp_path / "copy"
    step, is_over = 0, False
    while not is_over:
        is_over = not killed_at(path, step, flush_at)
        for boot in (None, b"B" * 16):  # of another run of the machine
            shutil.copytree(path, copy)
            with monkeypatch.context() as patch:
                if boot is not None:
                    patch.setattr(kstore.log.log_dir, "boot_id", lambda: b"B" * 16)
                with kstore.open_log(copy, **SETTINGS) as log:
                    entries = log.core.producers.entries
                    last = {number: entry.last_offset for number, entry in entries.items()}
                    assert last == PRODUCERS, (step, boot)
                    assert log.core.epochs.as_list() == EPOCHS, (step, boot)
                    keys = {record.key for record in log.records()}
                    assert len(keys) == 8 + 7 + 1, (step, boot)
                    assert log.local.directory.damages == 0
            shutil.rmtree(copy)
        shutil.rmtree(path)
        step += 1
    assert step > 10
