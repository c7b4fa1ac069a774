"""A reader's snapshot of a log whose writer was killed during a swap: it has the same records as
the reader.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import kstore
from kstore.log import Log, LogStorageError
from tests.log.retention.swap_model import (
    LATER,
    CountingFileSystem,
    Model,
    compacted_once,
    leftovers,
    open_on,
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A log after a kill during a swap: some old segments are removed."""
    path = tmp_path_factory.mktemp("log")
    model = compacted_once(path)
    fs = CountingFileSystem(str(path))
    log = open_on(fs)
    fs.fail("unlink", errno.EIO, after=1)
    for _ in range(20):
        fs.fail("unlink", errno.EIO)
    with pytest.raises(LogStorageError):
        log.compact(LATER)
    assert len(leftovers(path)) == 1
    copy = tmp_path_factory.mktemp("killed") / "log"
    shutil.copytree(path, copy)
    fs.faults.clear()
    log.close()
    return copy, model


def reader_of(path: Path) -> Log:
    """The log, opened for reading."""
    return kstore.open_log(path, read_only=True)


def test_a_snapshot_names_each_segment_by_its_base_offset(
    killed: tuple[Path, Model], tmp_path: Path
) -> None:
    path, model = killed
    with reader_of(path) as reader:
        model.check(reader)
        reader.snapshot(tmp_path / "copy")
    assert leftovers(tmp_path / "copy") == []
    model.check_folder(tmp_path / "copy", without_index=False)


@pytest.mark.parametrize("without_index", [False, True])
def test_a_swap_whose_segments_are_all_gone_is_finished(
    killed: tuple[Path, Model], tmp_path: Path, without_index: bool
) -> None:
    path, model = tmp_path / "log", killed[1]
    shutil.copytree(killed[0], path)
    (name,) = leftovers(path)
    base, end = (int(part) for part in name.split("-")[:2])
    for file in (path / "log-0").glob("*.log"):
        if base <= int(file.stem) < end:
            file.unlink()
    with reader_of(path) as reader:
        model.check(reader)
    model.check_folder(path, without_index=without_index)
