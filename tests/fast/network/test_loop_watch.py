"""The loop's clock, and the thread that sees what still holds the loop."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from kstore._fast.network.loop_guard import guard
from kstore._fast.network.loop_watch import LoopWatch, shorten_slice
from kstore._fast.network.stolen_time import StolenTime
from kstore._fast.network.watched_loop import WatchedLoop

COUNTED_S = 0.002
"""Longer than the millisecond from which on a hold is counted."""
WHILE_STOPPED_S = 1.5
HELD_WITH_PYTHONS_LOCK = """
import ctypes, os, sys, threading
from kstore._fast.network.loop_guard import guard
from kstore._fast.network.loop_watch import LoopWatch
watch = LoopWatch({0: b"Produce"})
watch.attach()
stop, own = os.pipe()
threading.Thread(target=guard, args=(watch, stop, 50, print), daemon=True).start()
fifo = os.open(sys.argv[1], os.O_RDWR)
watch.run(ctypes.PyDLL(None).read, fifo, ctypes.create_string_buffer(1), 1)
"""
HELD_WHILE_STOPPED = """
import os, sys, threading
from kstore._fast.network.loop_guard import guard
from kstore._fast.network.loop_watch import LoopWatch
watch = LoopWatch()
watch.attach()
stop, own = os.pipe()
threading.Thread(target=guard, args=(watch, stop, 600_000, print), daemon=True).start()
watch.on_hold = lambda *told: print(told[5], flush=True)
watch.run(lambda: (print("held", flush=True), sys.stdin.readline()))
"""


class Holds(list):
    def __init__(self, watch):
        super().__init__()
        watch.on_hold = lambda *told: self.append(told)

    @property
    def callbacks(self):
        return [told[1] for told in self]


@pytest.fixture
def watch():
    watch = LoopWatch({0: b"Produce"})
    watch.attach()
    return watch


@pytest.fixture
def loop(watch):
    loop = WatchedLoop(watch)
    yield loop
    loop.close()


def hold(*_):
    time.sleep(COUNTED_S)


def test_short_slices_are_for_the_calling_thread_only() -> None:
    if sys.platform != "linux":
        assert not shorten_slice()
        return
    found: list[int] = []
    is_new = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 12)
    # A negative nice value would be taken from new threads.
    expected = is_new and os.nice(0) >= 0

    def policy() -> None:
        found.append(os.sched_getscheduler(0))

    def short() -> None:
        assert shorten_slice() == expected
        policy()
        inner = threading.Thread(target=policy)
        inner.start()
        inner.join()

    thread = threading.Thread(target=short)
    thread.start()
    thread.join()
    assert [each & os.SCHED_RESET_ON_FORK != 0 for each in found] == [expected, False]
    assert {each & ~os.SCHED_RESET_ON_FORK for each in found} == {os.SCHED_OTHER}


def test_a_callback_that_holds_the_loop_is_told_with_the_time_it_took(watch):
    told = Holds(watch)
    watch.run(hold)
    [(api_key, callback, held_us, core_us, waited_us, stood_us, _, gc_us)] = told
    assert (api_key, callback, stood_us, gc_us) == (-1, hold, 0, 0)
    assert held_us >= COUNTED_S * 1e6
    assert max(core_us, waited_us) <= held_us
    assert watch.began_us == 0


@pytest.mark.parametrize("ticks", [0, 1, 30])
def test_a_hold_is_told_with_the_time_that_a_hypervisor_took(tmp_path, ticks):
    stat = tmp_path / "stat"
    cores = range(os.cpu_count() or 1)

    def write_steal(steal):
        lines = ["cpu  1 2 3 4 5 6 7 8 9 10", *(f"cpu{n} 1 2 3 4 5 6 7 {steal} 9 0" for n in cores)]
        stat.write_text("\n".join([*lines, "intr 123", ""]))

    def stand():
        write_steal(100 + ticks)
        time.sleep(0.1)

    write_steal(100)
    watch = LoopWatch({}, StolenTime(str(stat)))
    watch.attach()
    told = Holds(watch)
    watch.run(stand)
    [(_, _, held_us, core_us, waited_us, stood_us, stolen_us, _)] = told
    tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")
    rest_us = held_us - core_us - waited_us - stood_us
    known = ticks > 0 and sys.platform == "linux"  # elsewhere a thread cannot tell its core
    assert stolen_us == (min(rest_us, ticks * tick_us) if known else 0)


def test_what_is_called_within_a_callback_is_a_part_of_it(watch):
    told = Holds(watch)
    outer = partial(watch.run, hold)
    watch.run(outer)
    assert told.callbacks == [outer]


def test_a_callback_that_fails_is_told_and_over(watch):
    told = Holds(watch)

    def fail():
        hold()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        watch.run(fail)
    assert told.callbacks == [fail]
    assert watch.began_us == 0


def test_a_garbage_collection_is_told_as_a_part_of_the_hold(watch):
    told = Holds(watch)
    keep = [[] for _ in range(200_000)]
    gc.callbacks.append(watch.on_gc)
    try:
        watch.run(lambda: (gc.collect(), hold()))
        watch.run(hold)
    finally:
        gc.callbacks.remove(watch.on_gc)
    assert keep
    assert 0 < told[0][7] <= told[0][2]
    assert told[1][7] == 0


def test_all_that_a_loop_is_given_to_call_is_on_the_clock(watch, loop):
    told = Holds(watch)
    readable, written = os.pipe()
    os.write(written, b"x")
    seen = []

    def named(name, and_then=lambda: None):
        def call(*_):
            seen.append(name)
            and_then()
            hold()

        call.name = name
        return call

    loop.call_soon(named("soon"))
    loop.call_later(0.001, named("later"))
    loop.call_at(loop.time() + 0.001, named("at"))
    loop.add_reader(readable, named("reader", lambda: loop.remove_reader(readable)))
    loop.add_writer(written, named("writer", lambda: loop.remove_writer(written)))
    threading.Timer(0.0, loop.call_soon_threadsafe, [named("another thread")]).start()

    async def wait():
        while len(seen) < 6:
            await asyncio.sleep(0.001)

    loop.run_until_complete(wait())
    os.close(readable)
    os.close(written)
    names = [getattr(each, "name", None) for each in told.callbacks]
    assert sorted(filter(None, names)) == [
        "another thread", "at", "later", "reader", "soon", "writer",
    ]  # fmt: skip


def test_a_step_of_a_task_is_told_by_its_task(watch, loop):
    told = Holds(watch)

    async def work():
        hold()

    task = loop.create_task(work(), name="what it is for")
    loop.run_until_complete(task)
    assert told.callbacks[0].__self__ is task


def test_what_still_holds_the_loop_is_told_while_it_does(watch, capfd):
    stop, end = os.pipe()
    seen = []
    over = threading.Event()

    def on_stuck(began_us):
        seen.append((began_us, watch.began_us, watch.running()))
        over.set()

    thread = threading.Thread(target=guard, args=(watch, stop, 20, on_stuck))
    thread.start()
    watch.run(over.wait)
    os.close(end)
    thread.join()
    os.close(stop)
    [(told, began, running)] = seen
    assert told == began > 0
    assert running == over.wait
    assert "WARNING the loop has been held for" in capfd.readouterr().err


def test_what_still_holds_the_loop_is_told_as_json_where_the_log_is(watch, capfd):
    stop, end = os.pipe()
    over = threading.Event()
    watch.writes_json = True
    thread = threading.Thread(target=guard, args=(watch, stop, 20, lambda began_us: over.set()))
    thread.start()
    watch.run(over.wait)
    os.close(end)
    thread.join()
    os.close(stop)
    told = json.loads(capfd.readouterr().err)
    assert (told["level"], told["logger"]) == ("WARN", "kstore.broker")
    assert told["message"].startswith("the loop has been held for ")


def test_a_disk_that_hangs_is_named_though_pythons_lock_is_held(tmp_path):
    fifo = tmp_path / "a disk"
    os.mkfifo(fifo)
    command = [sys.executable, "-c", HELD_WITH_PYTHONS_LOCK, str(fifo)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()  # the process does nothing but hang
        Path(fifo).write_bytes(b"x")
    assert "WARNING the loop has been held for" in line
    assert line.endswith(f"so far by a callback; its thread is in read of {fifo}\n")


def test_a_process_that_was_stopped_did_not_hold_its_loop():
    command = [sys.executable, "-c", HELD_WHILE_STOPPED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        time.sleep(0.3)  # the guard's thread begins
        process.send_signal(signal.SIGSTOP)
        time.sleep(WHILE_STOPPED_S)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        stood_us = int(process.stdout.readline())
    assert stood_us > WHILE_STOPPED_S * 1e6 / 2
