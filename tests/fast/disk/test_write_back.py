"""Early write-back on real files: noted ranges are written and counted, writers wait for them when
the budget is exceeded, and a removed file is dropped.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore._fast.disk.write_back import WriteBack
from kstore._fast.log.dir_calm import DirCalm
from kstore._fast.log.segment_file import SegmentFile

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="sync_file_range is Linux's; elsewhere nothing begins early"
)
MIB = 1 << 20
PATIENCE_MS = 60_000


@pytest.fixture
def back() -> Iterator[WriteBack]:
    made = WriteBack()
    yield made
    made.close()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    made = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.truncate(made, 64 * MIB)
    yield made
    os.close(made)


class Stuck:
    """A file whose write-back hangs: a pipe that cannot be read until it is written to."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._writers: list[int] = []

    def go_on(self) -> None:
        """Hanging calls continue, and new ones run."""
        self._writers.append(os.open(self._path, os.O_WRONLY))

    def close(self) -> None:
        self.go_on()
        for descriptor in (self.descriptor, *self._writers):
            os.close(descriptor)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    made = Stuck(tmp_path / "pipe")
    yield made
    made.close()


def descriptors_of(path: Path) -> int:
    """How many descriptors of this process are of a file."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.path.realpath(f"/proc/self/fd/{name}").startswith(str(path))
        except FileNotFoundError:
            continue
    return found


def test_what_is_noted_is_written_down_to_a_quarter_of_the_budget(
    back: WriteBack, descriptor: int
) -> None:
    back.set_budget(16 * MIB)
    for at in range(5):
        assert back.add(descriptor, at * 4 * MIB, 4 * MIB)
    assert back.noted_bytes == 20 * MIB
    assert back.wait(PATIENCE_MS)
    while back.unwritten_bytes > 4 * MIB:
        os.sched_yield()
    assert back.written_bytes == 16 * MIB
    assert back.unwritten_bytes == 4 * MIB


def test_a_little_is_left_to_the_system_and_costs_no_thread(
    back: WriteBack, descriptor: int
) -> None:
    threads = len(os.listdir("/proc/self/task"))
    with_thread = WriteBack()
    with_thread.set_budget(64 * MIB)
    assert len(os.listdir("/proc/self/task")) == threads
    assert with_thread.add(descriptor, 0, 8 * MIB)
    with_thread.close()
    assert with_thread.written_bytes == 0


def test_over_the_budget_who_waits_for_room_waits_until_it_is_written(
    back: WriteBack, stuck: Stuck
) -> None:
    back.set_budget(4 * MIB)
    assert back.add(stuck.descriptor, 0, 8 * MIB)
    assert back.over_budget
    assert not back.wait(1)
    kept: list[bool] = []
    waiter = threading.Thread(target=lambda: kept.append(back.wait(PATIENCE_MS)))
    waiter.start()
    while back.busy_ms == 0:
        os.sched_yield()
    assert kept == []
    stuck.go_on()
    waiter.join()
    assert kept == [True]
    assert not back.over_budget
    assert (back.written_bytes, back.unwritten_bytes) == (8 * MIB, 0)


def test_a_log_dir_is_not_calm_while_more_is_unwritten_than_may_be(
    back: WriteBack, stuck: Stuck
) -> None:
    calm = DirCalm()
    calm.follow(back)
    back.set_budget(4 * MIB)
    assert calm.calm
    back.add(stuck.descriptor, 0, 8 * MIB)
    assert not calm.calm
    stuck.go_on()
    assert back.wait(PATIENCE_MS)
    assert calm.calm


def test_what_hangs_holds_nobody_who_closes(stuck: Stuck) -> None:
    back = WriteBack()
    back.set_budget(4 * MIB)
    back.add(stuck.descriptor, 0, 8 * MIB)
    back.close()
    assert back.wait(PATIENCE_MS)  # nothing is over a budget any more


def test_notes_of_nobody_who_writes_keep_it_over_the_budget(
    back: WriteBack, descriptor: int
) -> None:
    """A closed one has no thread: nothing is written, and no caller waits for it."""
    back.close()
    assert not back.add(descriptor, 0, 8 * MIB)
    assert back.wait(PATIENCE_MS)


def test_a_forgotten_owner_keeps_no_descriptor(back: WriteBack, tmp_path: Path) -> None:
    back.set_budget(64 * MIB)
    path = tmp_path / "gone"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    assert back.add(descriptor, 0, 4 * MIB, owner=7)
    assert back.add(descriptor, 4 * MIB, 4 * MIB, owner=8)
    os.unlink(path)
    os.close(descriptor)
    assert descriptors_of(path) == 2
    back.drop(7)
    assert back.unwritten_bytes == 4 * MIB
    assert descriptors_of(path) == 1
    back.drop(8)
    assert back.unwritten_bytes == 0
    assert descriptors_of(path) == 0


def test_switched_off_nothing_is_taken(back: WriteBack, descriptor: int) -> None:
    back.set_budget(0)
    assert not back.possible
    assert not back.add(descriptor, 0, 8 * MIB)


def test_the_budget_is_asked_for_when_the_first_note_comes(descriptor: int) -> None:
    asked: list[int] = []

    def find() -> int:
        asked.append(1)
        return 32 * MIB

    back = WriteBack(find)
    assert asked == []
    back.add(descriptor, 0, MIB)
    back.add(descriptor, MIB, MIB)
    assert (asked, back.budget_bytes) == ([1], 32 * MIB)
    back.close()


def test_a_segment_file_notes_what_it_wrote_but_for_its_end(
    back: WriteBack, tmp_path: Path
) -> None:
    back.set_budget(32 * MIB)  # a note for each MiB
    file = SegmentFile(str(tmp_path / "segment"), writable=True, create=True)
    file.write_back = back
    for _ in range(25):
        file.append(b"x" * 100_000)
    assert back.noted_bytes == 2 * (MIB + 65536 - MIB % 65536) - 2 * 65536
    before = back.noted_bytes
    file.append(b"x" * 1000)
    assert back.noted_bytes == before
    file.close()
    assert back.unwritten_bytes == 0


def test_what_was_synced_or_cut_off_is_not_noted(back: WriteBack, tmp_path: Path) -> None:
    back.set_budget(32 * MIB)
    file = SegmentFile(str(tmp_path / "segment"), writable=True, create=True)
    file.write_back = back
    for _ in range(8):
        file.append(b"x" * 900_000)
        file.sync()
    assert back.noted_bytes == 0
    file.append(b"x" * 900_000)
    file.truncate(100)
    file.append(b"x" * 900_000)
    assert back.noted_bytes == 0
    file.close()


def test_many_files_that_write_little_each_are_noted_in_small_steps(
    back: WriteBack, tmp_path: Path
) -> None:
    back.set_budget(16 * MIB)
    files = [
        SegmentFile(str(tmp_path / f"segment{at}"), writable=True, create=True) for at in range(40)
    ]
    for file in files:
        file.write_back = back
        file.append(b"x" * 500_000)  # below a step: 20 MB in all
    assert back.noted_bytes > 0
    for file in files:
        file.close()


def test_a_forked_child_touches_nothing(back: WriteBack, descriptor: int) -> None:
    back.set_budget(64 * MIB)
    back.add(descriptor, 0, MIB)
    child = os.fork()
    if child == 0:
        taken = back.add(descriptor, 0, MIB)
        back.close()
        os._exit(int(taken))
    assert os.waitpid(child, 0)[1] == 0
    assert back.unwritten_bytes == MIB
