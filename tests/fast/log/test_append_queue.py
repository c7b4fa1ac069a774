"""Appends by threads: the order in each log, failures, and the report about a hanging one."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore._fast.log.append_queue import AppendQueue, CallbackJob
from kstore._fast.log.dir_calm import DirCalm
from kstore._fast.log.segment_file import SegmentFile
from kstore._fast.record.builder import build_batch
from kstore.env import SystemEnv
from kstore.log import Log, LogDir, open_log_dir
from tests.log.segments.hooked_files import HookedFiles

WAIT_S = 60
STORAGE_ERROR, NOT_LEADER = 56, 6


class GatedFiles(HookedFiles):
    """Appends to the topic `slow` wait while the gate is shut, and may fail."""

    only = "slow"

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Semaphore(0)
        self.failing: OSError | None = None

    def before(self, call: str, path: str) -> None:
        if call == "append":
            self.reached.release()
            assert self.open.wait(WAIT_S)
            if self.failing is not None:
                raise self.failing


class Loop:
    """Stands for the loop: what is called from threads is run by `turn`."""

    def __init__(self) -> None:
        self.calls: Queue[Callable[[], None]] = Queue()
        self.done: list[CallbackJob] = []

    def until(self, count: int) -> list[CallbackJob]:
        """Run calls until this number of appends is done."""
        while len(self.done) < count:
            self.calls.get(timeout=WAIT_S)()
        return self.done


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def gate() -> GatedFiles:
    return GatedFiles()


@pytest.fixture
def log_dir(tmp_path: Path, loop: Loop, gate: GatedFiles):
    opened = open_log_dir(str(tmp_path / "logs"), env=SystemEnv(fs=gate))
    opened.appends.serve(loop.calls.put)
    yield opened
    gate.open.set()
    opened.close()


def batch(value: bytes, count: int = 1) -> bytes:
    return build_batch([value] * count, timestamp=1)


def leave(loop: Loop, log: Log, data: bytes) -> None:
    """Leave an append to the threads of its log dir."""
    log.log_dir.appends.append(log.core, data, 0, "client", loop.done.append)


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.read(0)]


def test_appends_of_one_log_are_in_order_and_all_are_told(log_dir: LogDir, loop: Loop) -> None:
    log = log_dir.log("t")
    sizes = [10, 100_000, 5, 70_000, 1, 200_000]
    for i, size in enumerate(sizes):
        leave(loop, log, batch(bytes([i]) * size))
    assert log.core.queued == 6
    assert [job.base_offset for job in loop.until(6)] == [0, 1, 2, 3, 4, 5]
    assert values(log) == [bytes([i]) * size for i, size in enumerate(sizes)]
    assert log.core.queued == 0


class Kept:
    """Keeps the job that it is called with, as the result of a future is kept."""

    job: CallbackJob | None = None

    def keep(self, job: CallbackJob) -> None:
        self.job = job


def test_a_callback_that_keeps_its_job_is_no_cycle(log_dir: LogDir, loop: Loop) -> None:
    """Or the memory of the append would wait for a garbage collection."""
    log, kept = log_dir.log("t"), Kept()
    there = weakref.ref(kept)
    gc.disable()
    try:
        log.log_dir.appends.append(log.core, batch(b"x"), 0, "client", kept.keep)
        while kept.job is None:
            loop.calls.get(timeout=WAIT_S)()
        assert kept.job.base_offset == 0
        del kept
        assert there() is None
    finally:
        gc.enable()


def test_held_appends_of_one_log_wait_for_their_release_in_order(
    log_dir: LogDir, loop: Loop
) -> None:
    held, other = log_dir.log("held"), log_dir.log("t")
    log_dir.appends.hold(held.core)
    for value in (b"1", b"2"):
        leave(loop, held, batch(value))
    leave(loop, other, batch(b"beside it"))
    [beside] = loop.until(1)
    assert (beside.problem, values(other)) == (None, [b"beside it"])
    assert (held.core.queued, held.log_end_offset) == (2, 0)
    log_dir.appends.release(held.core)
    leave(loop, held, batch(b"3"))
    loop.until(4)
    assert values(held) == [b"1", b"2", b"3"]
    assert held.core.queued == 0


def test_what_hangs_holds_its_log_and_nothing_of_the_other_lane(
    log_dir: LogDir, loop: Loop, gate: GatedFiles
) -> None:
    slow, other = log_dir.log("slow"), log_dir.log("t")
    gate.open.clear()
    leave(loop, slow, batch(b"x" * 70_000))
    leave(loop, slow, batch(b"small, and behind it"))
    leave(loop, other, batch(b"beside it"))
    [beside] = loop.until(1)
    assert (beside.problem, values(other)) == (None, [b"beside it"])
    assert slow.log_end_offset == 0
    gate.open.set()
    loop.until(3)
    assert values(slow) == [b"x" * 70_000, b"small, and behind it"]


def test_a_failure_fails_what_is_queued_behind_it_and_nothing_later(
    log_dir: LogDir, loop: Loop, gate: GatedFiles
) -> None:
    slow = log_dir.log("slow")
    leave(loop, slow, batch(b"first"))
    loop.until(1)
    gate.open.clear()
    gate.failing = OSError(errno.ENOSPC, "no space")
    for value in (b"fails", b"behind", b"behind that"):
        leave(loop, slow, batch(value))
    gate.open.set()
    problems = [job.problem for job in loop.until(4)[1:]]
    assert [type(each) for each in problems] == [OSError] * 3
    assert "no space" in str(problems[0])
    assert "an append before it failed" in str(problems[2])
    assert values(slow) == [b"first"]
    gate.failing = None
    leave(loop, slow, batch(b"later"))
    assert loop.until(5)[4].base_offset == 1
    assert values(slow) == [b"first", b"later"]


def test_what_was_queued_before_leadership_ended_is_refused(
    log_dir: LogDir, loop: Loop, gate: GatedFiles
) -> None:
    slow = log_dir.log("slow")
    gate.open.clear()
    leave(loop, slow, batch(b"under way"))
    leave(loop, slow, batch(b"queued"))
    gate.reached.acquire()
    slow.core.refuse_queued()
    leave(loop, slow, batch(b"of the next term"))
    gate.open.set()
    codes = [job.error_code for job in loop.until(3)]
    assert codes == [0, NOT_LEADER, 0]
    assert values(slow) == [b"under way", b"of the next term"]


def test_a_closed_log_takes_nothing_of_what_is_queued(log_dir: LogDir, loop: Loop) -> None:
    log = log_dir.log("t")
    log.core.close()
    leave(loop, log, batch(b"late"))
    assert loop.until(1)[0].error_code == STORAGE_ERROR


def test_closing_the_directory_does_what_is_queued_first(tmp_path: Path, loop: Loop) -> None:
    log_dir = open_log_dir(str(tmp_path / "logs"))
    log_dir.appends.serve(loop.calls.put)
    log = log_dir.log("t")
    for i in range(50):
        leave(loop, log, batch(b"%d" % i))
    log_dir.close()
    with open_log_dir(str(tmp_path / "logs"), read_only=True) as again:
        assert values(again.log("t", create=False)) == [b"%d" % i for i in range(50)]


def test_who_has_no_loop_can_leave_nothing_to_threads(tmp_path: Path) -> None:
    with open_log_dir(str(tmp_path / "logs")) as log_dir:
        log = log_dir.log("t")
        with pytest.raises(RuntimeError, match=r"call serve\(\) first"):
            log_dir.appends.append(log.core, batch(b"x"), 0, "client", print)
        assert log.core.queued == 0


def test_what_hangs_is_named_by_a_thread(
    log_dir: LogDir, loop: Loop, gate: GatedFiles, caplog: Any
) -> None:
    slow = log_dir.log("slow")
    gate.open.clear()
    leave(loop, slow, batch(b"x"))
    said = threading.Event()
    caplog.handler.addFilter(lambda record: bool(said.set()) or True)
    assert said.wait(WAIT_S)
    [first] = [r.getMessage() for r in caplog.records if "waiting for the disk" in r.getMessage()]
    assert f"an append to slow-0 in {log_dir.path} has been waiting for the disk for 1." in first
    assert not log_dir.appends.calm.calm
    gate.open.set()
    loop.until(1)
    assert any("an append to slow-0" in r.getMessage() and "took" in r.getMessage()
               for r in caplog.records)  # fmt: skip


def test_a_directory_is_calm_until_something_is_slow_there() -> None:
    calm = DirCalm()
    assert calm.calm
    calm.note_slow()
    assert not calm.calm
    for name in ("threads_always", "over_budget"):
        calm = DirCalm()
        setattr(calm, name, True)
        assert not calm.calm


def core_waited_us() -> int:
    """How long this thread has waited for a core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) // 1000


def on_a_busy_core(write: Callable[[], None]) -> None:
    """Run it beside one busy process on the same core, with the lowest priority: it hardly runs."""

    def run() -> None:
        os.sched_setaffinity(0, {core})
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        write()

    core = min(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(busy.pid, {core})
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(WAIT_S)
    finally:
        busy.kill()
        busy.wait()


def test_a_write_that_waited_for_a_core_says_nothing_of_the_disk() -> None:
    told: list[bool] = []

    def write() -> None:
        while not told:
            calm = DirCalm()
            assert calm.calm
            waited, begin = core_waited_us(), time.monotonic()
            while core_waited_us() - waited < 60_000:
                pass
            calm.note_loop_write(took_us := int((time.monotonic() - begin) * 1e6))
            if took_us - (core_waited_us() - waited) < 10_000:  # else it ran for too long
                told.append(calm.calm)

    on_a_busy_core(write)
    assert told == [True]


def test_a_slow_write_counts_though_its_thread_waited_for_a_core_before() -> None:
    told: list[bool] = []

    def write() -> None:
        calm = DirCalm()
        assert calm.calm
        waited = core_waited_us()
        while core_waited_us() - waited < 60_000:
            pass
        begin = time.monotonic()
        time.sleep(0.03)  # as if for the disk
        calm.note_loop_write(int((time.monotonic() - begin) * 1e6))
        told.append(calm.calm)

    on_a_busy_core(write)
    assert told == [False]


def test_a_write_that_waited_for_the_disk_counts_on_a_busy_machine_too() -> None:
    calm = DirCalm()
    assert calm.calm
    begin = time.monotonic()
    time.sleep(0.03)
    calm.note_loop_write(int((time.monotonic() - begin) * 1e6))
    assert not calm.calm


def test_in_a_simulation_nothing_is_timed_and_no_thread_begins(tmp_path: Path) -> None:
    runs: list[Callable[[], bool]] = []
    done: list[Any] = []
    before = threading.active_count()
    with open_log_dir(str(tmp_path / "logs")) as log_dir:
        log_dir.appends.serve(lambda call: call(), runs.append)
        log_dir.appends.calm.note_slow()
        assert log_dir.appends.calm.calm
        log = log_dir.log("t")
        for _ in range(3):
            log_dir.appends.append(log.core, batch(b"x"), 0, "client", done.append)
        assert log.log_end_offset == 0
        while len(done) < 3:
            assert runs.pop(0)()
        assert not runs
        assert threading.active_count() - before <= 1, "the log dir's maintenance"


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 90_000), st.integers(1, 3), st.booleans()),
        max_size=30,
    )
)
def test_jobs_give_the_logs_that_direct_appends_give(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int, bool]]
) -> None:
    loop = Loop()
    folder = tmp_path_factory.mktemp("logs")
    with open_log_dir(str(folder / "a")) as one, open_log_dir(str(folder / "b")) as two:
        one.appends.serve(loop.calls.put)
        queued = 0
        for number, (index, size, count, direct) in enumerate(steps):
            data = batch(bytes([number]) * size, count)
            two.log("t", index).append_batches(data, leader_epoch=0)
            if direct and one.log("t", index).core.queued == 0:
                one.log("t", index).append_batches(data, leader_epoch=0)
            else:
                leave(loop, one.log("t", index), data)
                queued += 1
        loop.until(queued)
        for index in range(3):
            assert values(one.log("t", index)) == values(two.log("t", index))
            first, second = (
                Path(each.path) / f"t-{index}" / f"{0:020d}.log" for each in (one, two)
            )
            size = one.log("t", index).core.active.size_bytes
            assert first.read_bytes()[:size] == second.read_bytes()[:size]


def test_the_queue_knows_its_directory(log_dir: LogDir) -> None:
    assert isinstance(log_dir.appends, AppendQueue)
    assert log_dir.appends.path == log_dir.path


def spare_bytes(file: SegmentFile) -> int:
    return os.fstat(file.fd).st_blocks * 512 - file.size_bytes


def until_half_is_used(log: Log) -> SegmentFile:
    """Append until a thread is to ask for disk space; the file that needs it."""
    asked: list[SegmentFile] = []
    log.append(b"x")
    log.core.active.handle_or_open().reserve_later = asked.append
    while not asked:
        log.append(b"x" * 10_000)
        assert log.log_end_offset < 100
    return asked[0]


def test_disk_space_is_asked_for_by_a_thread_before_appends_need_it(log_dir: LogDir) -> None:
    log = log_dir.log("t")
    file = until_half_is_used(log)
    size = file.size_bytes
    assert size < 256 * 1024  # from there on an append without space has to wait for it
    log.append(b"x")
    file.reserve_ahead()
    if spare_bytes(file) > 64 * 1024:  # the file system can reserve
        assert size < spare_bytes(file) <= size + 65536
    reserved = spare_bytes(file)
    file.reserve_ahead()  # nothing more is requested before half of that is used
    assert spare_bytes(file) == reserved


def test_space_that_nobody_waits_for_any_more_is_not_taken(log_dir: LogDir) -> None:
    log = log_dir.log("t")
    file = until_half_is_used(log)
    file.give_back()
    reserved = spare_bytes(file)
    file.reserve_ahead()
    assert spare_bytes(file) == reserved
    closed = SegmentFile(file.path, writable=True)
    closed.close()
    closed.reserve_ahead()
    assert spare_bytes(file) == reserved


def test_what_is_written_counts_where_nobody_can_ask_for_space(log_dir: LogDir) -> None:
    log = log_dir.log("t")
    file = until_half_is_used(log)
    file.give_back()

    def refused(_: SegmentFile) -> None:
        raise RuntimeError("can't start new thread")

    file.reserve_later = refused
    before = log.log_end_offset
    log.append(b"x" * 10_000)
    assert file.reserve_later is None
    assert log.log_end_offset == before + 1
    log.append(b"y")
    assert [record.value for record in log.records(before)] == [b"x" * 10_000, b"y"]


def test_space_is_asked_for_again_after_a_write_that_was_faster(log_dir: LogDir) -> None:
    log = log_dir.log("t")
    file = until_half_is_used(log)
    log.append(b"x" * 200_000)  # asks itself: the thread comes too late
    file.reserve_ahead()
    asked: list[SegmentFile] = []
    file.reserve_later = asked.append
    for _ in range(400):
        log.append(b"x" * 10_000)
    assert asked


def test_the_queue_has_a_thread_ask_for_space(log_dir: LogDir) -> None:
    log = log_dir.log("t")
    file = until_half_is_used(log)
    begun, ended = threading.Event(), threading.Event()

    class Asked(SegmentFile):
        def reserve_ahead(self) -> None:
            assert threading.current_thread() is not threading.main_thread()
            begun.set()
            assert ended.wait(WAIT_S)

    other = Asked(file.path)
    log_dir.appends.reserve(other)
    assert begun.wait(WAIT_S)
    log.append(b"goes on meanwhile")
    ended.set()
    other.close()
