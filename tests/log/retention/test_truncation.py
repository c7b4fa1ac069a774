"""Truncation beside readers, who take no lock, and on a disk that fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.log.segment_file import SegmentFile
from kstore.env import SystemEnv, SystemFileSystem
from kstore.log import Log, open_log_dir

END, CUT = 12, 6


class Files(SystemFileSystem):
    """Files that do something else before they are opened, or after they were cut."""

    def __init__(self) -> None:
        self.when_opened: Callable[[], object] | None = None
        self.when_cut: Callable[[], object] | None = None
        self.broken = False

    def open_segment(
        self, factory: Callable[..., Any], path: str, *, writable: bool, create: bool
    ) -> Any:
        do, self.when_opened = self.when_opened, None
        file = HookedFile(path, writable=writable, create=create)
        file.files = self
        if do is not None:
            do()
        return file

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.cut(path)

    def cut(self, path: str) -> None:
        do, self.when_cut = self.when_cut, None
        if do is not None and path.endswith(".log"):
            do()


class HookedFile(SegmentFile):
    files: Files

    def truncate(self, size_bytes: int) -> int:
        if self.files.broken:
            raise OSError(errno.EIO, "no")
        result = super().truncate(size_bytes)
        self.files.cut(self.path)
        return result


def make(path: Path, files: Files, *, roll: int = END) -> Log:
    """A log of twelve batches with a record each, which the caller's log dir closes."""
    directory = open_log_dir(path, env=SystemEnv(fs=files), index_interval_bytes=150)
    directory.replicated = True
    log = directory.log("t")
    for number in range(END):
        if number == roll:
            log.roll()
        log.append(b"value %03d" % number)
    log.core.set_high_watermark(END)
    return log


def read(log: Log) -> list[int]:
    """The offsets that a reader finds from the start on, as far as it gets."""
    found: list[int] = []
    offset = 0
    while offset < log.log_end_offset:
        data, behind = log.core.read(offset, log.log_end_offset, 150)
        if not data:
            break
        found += range(offset, behind)
        offset = behind
    return found


@pytest.mark.parametrize("roll", [END, CUT + 2, CUT])
def test_who_reads_while_the_file_is_cut_finds_less_and_no_damage(
    tmp_path: Path, roll: int
) -> None:
    files = Files()
    log = make(tmp_path, files, roll=roll)
    with log.log_dir:
        assert read(log) == list(range(END))
        found: list[list[int]] = []
        files.when_cut = lambda: found.append(read(log))
        assert log.truncate(CUT) == CUT
        [offsets] = found
        assert offsets == list(range(len(offsets)))
        assert len(offsets) <= CUT
        assert read(log) == list(range(CUT))
        assert log.log_dir.state.damages == 0


@pytest.mark.parametrize("start", [CUT - 1, CUT, CUT + 1])
def test_a_read_that_began_before_a_truncation_looks_again(tmp_path: Path, start: int) -> None:
    files = Files()
    log = make(tmp_path, files)
    with log.log_dir:
        log.core.active.close()
        files.when_opened = lambda: log.truncate(CUT)
        data, behind = log.core.read(min(start, CUT), END, 1 << 20)
        assert (bool(data), behind) == (start < CUT, CUT)


def test_a_truncation_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    files = Files()
    log = make(tmp_path, files, roll=8)

    with log.log_dir:
        files.broken = True
        with pytest.raises(OSError, match="no"):
            log.truncate(9)
        files.broken = False
        assert log.log_end_offset == END
        assert read(log) == list(range(END))
        assert log.truncate(9) == 9
        assert log.append(b"value 009") == 9
        log.core.set_high_watermark(10)
        assert read(log) == list(range(10))


def test_a_truncation_that_failed_after_a_segment_was_removed_can_be_tried_again(
    tmp_path: Path,
) -> None:
    files = Files()
    log = make(tmp_path, files, roll=8)
    with log.log_dir:
        files.broken = True
        with pytest.raises(OSError, match="no"):
            log.truncate(CUT)
        files.broken = False
        assert log.truncate(CUT) == CUT
        assert log.append(b"value 006") == CUT
        log.core.set_high_watermark(CUT + 1)
        assert read(log) == list(range(CUT + 1))
