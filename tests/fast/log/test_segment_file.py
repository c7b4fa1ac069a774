"""The segment file: appends at the end, reads anywhere, and stays as it was when a write fails."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from kstore._fast.log.segment_file import SegmentFile


@pytest.fixture
def file(tmp_path: Path):
    opened = SegmentFile(str(tmp_path / "a.log"), writable=True, create=True)
    yield opened
    opened.close()


def test_what_is_appended_can_be_read_anywhere(file: SegmentFile) -> None:
    file.append(b"hello")
    file.append(bytearray(b" world"))
    assert file.size_bytes == 11
    assert file.read(5, 0) == b"hello"
    assert file.read(100, 6) == b"world"
    assert file.read(1, 11) == b""


def test_bytes_are_overwritten_and_none_behind_the_end(file: SegmentFile) -> None:
    file.append(b"hello world")
    file.overwrite(b"HE", 0)
    file.overwrite(b"D", 10)
    with pytest.raises(ValueError, match="cannot write 2 bytes at 10: the file has 11 bytes"):
        file.overwrite(b"DD", 10)
    with pytest.raises(ValueError, match="at -1"):
        file.overwrite(b"x", -1)
    assert file.read(100, 0) == b"HEllo worlD"
    assert file.size_bytes == 11


def test_a_sync_covers_what_was_appended_before_it(file: SegmentFile) -> None:
    file.append(b"abc")
    assert file.durable_bytes == 0
    file.sync()
    file.append(b"d")
    assert (file.durable_bytes, file.size_bytes) == (3, 4)


def test_a_failed_append_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = SegmentFile(str(tmp_path / "a.log"), writable=True, create=True)
    try:
        file.append(b"x" * 1000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        with pytest.raises(OSError, match="large"):
            file.append(b"y" * 1000)
        assert file.size_bytes == 1000
        assert os.path.getsize(file.path) == 1000
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        file.append(b"z")
        assert file.read(2, 999) == b"xz"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
        file.close()


def test_truncation_cuts_and_refuses_to_grow(file: SegmentFile) -> None:
    file.append(b"abcdef")
    file.sync()
    file.truncate(2)
    assert (file.size_bytes, file.durable_bytes, file.read(10, 0)) == (2, 2, b"ab")
    with pytest.raises(ValueError, match="2 bytes"):
        file.truncate(3)


def test_preallocation_keeps_the_size_honest(file: SegmentFile) -> None:
    file.append(b"abc")
    file.preallocate(1 << 20)
    assert os.path.getsize(file.path) == file.size_bytes == 3


def test_a_read_only_file_refuses_appends(file: SegmentFile) -> None:
    file.append(b"abc")
    reader = SegmentFile(file.path)
    with pytest.raises(OSError, match="reading only"):
        reader.append(b"d")
    file.append(b"d")
    assert reader.refresh() == 4
    reader.close()
    with pytest.raises(OSError, match="closed"):
        reader.read(1, 0)


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_space_ahead_is_reserved_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    file = SegmentFile(str(path), writable=True, create=True)
    file.append(b"x" * 4096)
    assert allocated(path) <= 3 * 4096  # a small file gets none
    for _ in range(100):
        file.append(b"x" * 4096)
    file.sync()
    assert path.stat().st_size == 101 * 4096
    reserved = allocated(path)
    file.close()
    assert path.stat().st_size == 101 * 4096
    if reserved > 120 * 4096:  # the file system can reserve
        assert allocated(path) < reserved
    assert path.read_bytes() == b"x" * (101 * 4096)


def test_a_forked_child_that_closes_the_file_cuts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    file = SegmentFile(str(path), writable=True, create=True)
    for _ in range(100):
        file.append(b"x" * 4096)
    wait_end, go_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(wait_end, 1)
        file.close()
        os._exit(0)
    file.append(b"y" * 4096)
    os.write(go_end, b"!")
    assert os.waitpid(child, 0)[1] == 0
    assert path.stat().st_size == 101 * 4096
    file.close()
    os.close(wait_end)
    os.close(go_end)
    assert path.read_bytes()[-4096:] == b"y" * 4096
