"""Whether bytes are in the page cache, checked in each way, for files whose pages the test dropped;
and what the reader does if the answers are not reliable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore._fast.disk.page_cache import bring_in, is_resident
from kstore._fast.disk.page_reader import PageReader
from tests.fast.disk.dropped_pages import forget

pytestmark = pytest.mark.on_disk

PAGE = os.sysconf("SC_PAGESIZE")
MIB = 1 << 20
WAYS = ("cachestat", "nowait")


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(MIB))
    made = os.open(path, os.O_RDWR)
    yield made
    os.close(made)


def drop(descriptor: int) -> None:
    forget(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_written_is_there_and_what_was_dropped_is_not(descriptor: int, way: str) -> None:
    answers = [is_resident(descriptor, 0, MIB, way)]
    drop(descriptor)
    answers.append(is_resident(descriptor, 0, MIB, way))
    drop(descriptor)  # the kernel may have started to read ahead
    answers.append(is_resident(descriptor, 5, 1, way))
    assert bring_in(descriptor, 0, MIB) == MIB
    answers.append(is_resident(descriptor, 0, MIB, way))
    if None in answers:
        pytest.skip(f"this system has no {way}")
    assert answers == [True, False, False, True]


def test_one_page_that_is_missing_is_noticed(descriptor: int) -> None:
    if is_resident(descriptor, 0, PAGE) is None:
        pytest.skip("this system has no cachestat")
    drop(descriptor)
    bring_in(descriptor, 0, MIB)
    os.posix_fadvise(descriptor, 64 * PAGE, PAGE, os.POSIX_FADV_DONTNEED)
    assert is_resident(descriptor, 0, MIB) is False
    assert is_resident(descriptor, 0, 60 * PAGE) is True


def test_reading_in_ends_with_the_file(descriptor: int) -> None:
    assert bring_in(descriptor, MIB - 10, 5000) == 10
    assert bring_in(descriptor, 2 * MIB, 5000) == 0


def test_where_nothing_can_be_asked_all_is_there(descriptor: int) -> None:
    drop(descriptor)
    assert is_resident(descriptor, 0, MIB, "nothing") is True


def test_a_reader_that_nobody_asks_has_no_thread() -> None:
    threads = len(os.listdir("/proc/self/task"))
    reader = PageReader()
    reader.serve(lambda *_: None, lambda _: None)
    assert len(os.listdir("/proc/self/task")) == threads
    reader.end()
    assert not reader.serving
