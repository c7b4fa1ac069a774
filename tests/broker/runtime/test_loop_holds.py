"""What blocked the loop: how it is named, counted and reported."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from functools import partial

import pytest

from kstore._fast.network.loop_watch import LoopWatch
from kstore.broker.runtime.loop_holds import HOLDS, LONGEST, MAX_NAMES, LoopHolds
from kstore.broker.state.exposition import TEXT, page_lines

PRODUCE = 0


class FakeNode:
    """What LoopHolds needs from a Node."""

    node_id = 7

    def __init__(self, slow_ms=50):
        self.config = {
            "kstore.slow.loop.ms": slow_ms,
            "kstore.long.holds.file": None,
            "kstore.logging.format": "text",
        }
        self.told = []

    def report(self, sentence, about=""):
        self.told.append((sentence, about))


@pytest.fixture
def watch():
    return LoopWatch()


@pytest.fixture
def node():
    return FakeNode()


@pytest.fixture
def holds(node, watch):
    holds = LoopHolds(node, watch)
    holds.start()
    yield holds
    holds.close()


def note(watch, callback=None, api_key=-1, ms=60, core=5, waited=0, stood=0, stolen=0, collected=0):
    times = (1000 * each for each in (ms, core, waited, stood, stolen, collected))
    watch.on_hold(api_key, callback, *times)


def counted(holds):
    """Names with their number."""
    start = "kstore_loop_hold_seconds_count"
    rows = (
        line.rpartition(" ") for line in page_lines(holds.metrics(), TEXT) if line.startswith(start)
    )
    return {name[len(start) :]: int(count) for name, _, count in rows}


class Timers:
    """An owner that names the purpose of its callbacks."""

    held_by = 'Sessions."fire"'

    def wake(self):
        """Do nothing."""


def test_a_hold_is_named_by_its_api_else_by_its_function(holds, watch):
    note(watch, api_key=PRODUCE)
    note(watch, FakeNode().report)
    note(watch, partial(partial(FakeNode().report), "x"))
    note(watch, Timers().wake)
    note(watch)
    assert counted(holds) == {
        '{held_by="Produce"}': 1,
        '{held_by="FakeNode.report"}': 2,
        "{held_by=\"Sessions.'fire'\"}": 1,
        '{held_by="a connection"}': 1,
    }


def test_a_task_is_named_by_the_name_it_was_given_else_by_its_coroutine(holds, watch):
    async def work():
        return None

    async def main():
        for each in (asyncio.Task(work()), asyncio.Task(work(), name="ListOffsets")):
            note(watch, each.cancel)
            await each

    asyncio.run(main())
    function = "test_a_task_is_named_by_the_name_it_was_given_else_by_its_coroutine.work"
    assert counted(holds) == {f'{{held_by="{function}"}}': 1, '{held_by="ListOffsets"}': 1}


def test_a_hold_that_is_mostly_a_collection_is_named_so(holds, watch):
    note(watch, api_key=PRODUCE, ms=10, collected=5)
    note(watch, api_key=PRODUCE, ms=10, collected=4)
    assert counted(holds) == {'{held_by="garbage collection"}': 1, '{held_by="Produce"}': 1}


def test_there_are_only_so_many_names(holds, watch):
    for number in range(MAX_NAMES + 5):
        note(watch, _named(f"name {number}"))
    names = counted(holds)
    assert len(names) == MAX_NAMES + 1
    assert names['{held_by="others"}'] == 5


def _named(name):
    def call():
        return None

    call.__qualname__ = name
    return call


def test_holds_are_told_as_a_histogram_in_seconds(holds, watch):
    for ms in (1, 2, 3, 60, 1500):
        note(watch, api_key=PRODUCE, ms=ms)
    lines = list(page_lines(holds.metrics(), TEXT))
    assert lines[0].endswith("# TYPE kstore_loop_hold_seconds histogram")
    buckets = [line.rpartition(" ")[2] for line in lines if "_bucket{" in line]
    assert buckets == ["2", "3", "3", "3", "3", "4", "4", "4", "4", "5"]
    assert 'kstore_loop_hold_seconds_bucket{held_by="Produce",le="0.002"} 2' in lines
    assert 'kstore_loop_hold_seconds_bucket{held_by="Produce",le="+Inf"} 5' in lines
    assert 'kstore_loop_hold_seconds_sum{held_by="Produce"} 1.566000' in lines
    assert 'kstore_loop_hold_max_seconds{held_by="Produce"} 1.5' in lines
    assert holds.max_ms == 1500


def test_no_figure_has_the_time_without_a_core(holds, watch):
    note(watch, api_key=PRODUCE, ms=60, waited=52)
    note(watch, api_key=PRODUCE, ms=1700, waited=100, stood=1598)
    note(watch, api_key=PRODUCE, ms=40, waited=40)
    lines = list(page_lines(holds.metrics(), TEXT))
    buckets = [line.rpartition(" ")[2] for line in lines if "_bucket{" in line]
    assert buckets == ["2", "2", *["3"] * 8]
    assert 'kstore_loop_hold_seconds_sum{held_by="Produce"} 0.010000' in lines
    assert 'kstore_loop_hold_max_seconds{held_by="Produce"} 0.008' in lines


def test_a_hold_over_the_limit_is_told_with_what_the_thread_did(holds, watch, node):
    note(watch, api_key=PRODUCE, ms=1080, core=20, waited=30, stood=1000)
    assert node.told == [
        (
            "the loop was held for 1,080 ms by Produce (20 ms on a core, 30 ms waiting for one, "
            "30 ms waiting for a disk or a lock, 1,000 ms stopped with the whole process)",
            "the loop was held by Produce",
        )
    ]


def test_a_stop_by_the_hypervisor_is_not_told_as_a_wait_for_a_disk(holds, watch, node):
    note(watch, api_key=PRODUCE, ms=120, core=20, stolen=40)
    assert node.told[0][0] == (
        "the loop was held for 120 ms by Produce (20 ms on a core, 0 ms waiting for one, "
        "60 ms waiting for a disk or a lock, 40 ms stopped by the hypervisor)"
    )
    assert holds.max_ms == 80


def test_time_without_a_core_or_stopped_is_no_hold(holds, watch, node):
    note(watch, api_key=PRODUCE, ms=2000, waited=970, stood=990)
    assert node.told == []
    assert holds.max_ms == 40


def test_where_the_kernel_tells_no_times_the_hold_alone_is_told(holds, watch, node):
    note(watch, api_key=PRODUCE, ms=80, core=-1 / 1000)
    assert node.told[0][0] == "the loop was held for 80 ms by Produce"


def test_a_hold_of_a_second_is_always_told(holds, watch, node):
    note(watch, api_key=PRODUCE, ms=1000)
    assert node.told[0][1] == ""


@pytest.mark.parametrize("off", [50, -1])
def test_holds_of_a_second_are_kept_for_a_test_to_read(holds, watch, node, tmp_path, off):
    path = tmp_path / "holds"
    node.config |= {"kstore.long.holds.file": str(path), "kstore.slow.loop.ms": off}
    note(watch, api_key=PRODUCE, ms=999)
    note(watch, api_key=PRODUCE, ms=2000, waited=1001)
    assert not path.exists()
    note(watch, api_key=PRODUCE, ms=1001, core=1001)
    assert path.read_text() == (
        f"broker 7, process {os.getpid()}: the loop was held for 1,001 ms by Produce "
        "(1,001 ms on a core, 0 ms waiting for one)\n"
    )


@pytest.mark.parametrize("off", [0, -1])
def test_the_lines_can_be_switched_off(holds, watch, node, off):
    node.config["kstore.slow.loop.ms"] = off
    note(watch, api_key=PRODUCE, ms=5000)
    assert node.told == []
    assert counted(holds) == {'{held_by="Produce"}': 1}


def test_nothing_is_left_once_it_is_closed(node, watch):
    before = threading.active_count(), len(gc.callbacks)
    holds = LoopHolds(node, watch)
    holds.start()
    assert (threading.active_count(), len(gc.callbacks)) == (before[0] + 1, before[1] + 1)
    holds.close()
    holds.close()
    assert (threading.active_count(), len(gc.callbacks)) == before
    assert watch.on_hold is None


def test_a_loop_that_nobody_watches_is_no_fault(node):
    holds = LoopHolds(node, None)
    holds.start()
    assert list(holds.metrics()) == [HOLDS, LONGEST]
    holds.close()
