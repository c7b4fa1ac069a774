"""A swap that a failure, another process or retention interrupts: completed steps are not repeated,
and uncompleted steps do not count as completed.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kstore.log import LogStorageError
from kstore.log.recovery.recovery import load
from tests.log.retention.swap_model import (
    LATER,
    NOW,
    CountingFileSystem,
    Model,
    leftovers,
    open_on,
)


def test_a_swap_is_finished_while_the_index_is_full(
    prepared: tuple[Path, Model], tmp_path: Path
) -> None:
    path = tmp_path / "log"
    shutil.copytree(prepared[0], path)
    fs = CountingFileSystem(str(path))
    with open_on(fs) as log:
        fs.fail("unlink", errno.EIO, after=1)
        fs.fail("unlink", errno.EIO)
        with pytest.raises(LogStorageError):
            log.compact(LATER)
        for _ in range(20):
            fs.fail("index", errno.ENOSPC)
        assert leftovers(path)
        with log.local.swapping:
            assert not leftovers(path)
        prepared[1].check(log)
        fs.faults.clear()
    prepared[1].check_folder(path, without_index=False)


def test_a_log_that_is_loaded_again_within_a_swap_has_the_new_segment(
    prepared: tuple[Path, Model], tmp_path: Path
) -> None:
    path, model = tmp_path / "log", prepared[1].copy()
    shutil.copytree(prepared[0], path)
    fs = CountingFileSystem(str(path))
    with open_on(fs) as log:
        local = log.local

        def load_again() -> None:
            """Load the log as after another process that writes to it was killed."""
            local.finishes_swaps = False
            with local.core:
                load(local, local.directory.index.state(local.name))

        fs.do_at("fsync_dir", 0, load_again)
        log.compact(LATER)
        names = {Path(segment.path).name for segment in log.core.segments}
        assert names == {file.name for file in (path / "log-0").glob("*.log")}
        model.check(log)
        model.append(log, b"k2", b"more")
    model.check_folder(path, without_index=False)


def test_what_retention_interrupts_is_dirty_still(tmp_path: Path) -> None:
    fs = CountingFileSystem(str(tmp_path))
    with open_on(fs) as log:
        for number in range(60):
            log.append(b"value %d" % number, b"k%d" % (number % 3), timestamp=NOW)
        log.roll()
        log.compact(NOW)
        for number in range(60):
            log.append(b"value %d" % number, b"k%d" % (number % 30), timestamp=NOW)
        log.roll()
        first = log.core.segments[1].base_offset
        fs.do_at("sync", 0, lambda: log.delete_before(first))
        log.compact(NOW)
        assert log.log_start_offset == first
        assert log.dirt(NOW).first_dirty_offset == first
