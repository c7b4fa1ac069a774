"""Several processes (or several openings in one) write to a log, one after the other: each sees
what the others did, and one of them does the maintenance.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

import kstore
from kstore.log import (
    Log,
    LogClosedError,
    LogDirLockedError,
    LogNotFoundError,
    NotKeeperError,
    open_log_dir,
)
from kstore.types import TopicPartition
from tests.beside.programs import Dialogue
from tests.beside.waiting import until
from tests.log.handling import values

BEGIN = """
import os, signal, sys, time, kstore
log = kstore.open_log(sys.argv[1], shared=True)
"""


def child(path: Path, code: str) -> Dialogue:
    """A process that has the log open as ``log``, and says so."""
    code = f"{BEGIN}{code}\nprint('done', flush=True)\ntime.sleep(600)"
    return Dialogue([sys.executable, "-c", code, str(path)])


def test_each_sees_what_the_others_appended(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, shared=True) as one:
        with kstore.open_log(tmp_path, shared=True) as two:
            assert [one.append(b"a"), two.append(b"b"), two.append(b"c"), one.append(b"d")] == [
                0, 1, 2, 3,
            ]  # fmt: skip
            assert values(one) == values(two) == [b"a", b"b", b"c", b"d"]
            assert one.log_end_offset == two.log_end_offset == 4
        assert one.append(b"e") == 4
    with kstore.open_log(tmp_path) as alone:
        assert values(alone) == [b"a", b"b", b"c", b"d", b"e"]


def test_rolls_of_others_are_followed(tmp_path: Path) -> None:
    with (
        kstore.open_log(tmp_path, shared=True, segment_bytes=300) as one,
        kstore.open_log(tmp_path, shared=True, segment_bytes=300) as two,
    ):
        for number in range(40):
            assert one.append(b"%d" % number) == number * 2
            if number % 3 == 0:
                two.roll()
            assert two.append(b"%d" % number) == number * 2 + 1
        assert len(one.segments) == len(two.segments) > 10
        assert values(one) == values(two)
        assert [s.next_offset for s in one.segments] == [s.next_offset for s in two.segments]


def test_a_reader_sees_all_of_them(tmp_path: Path) -> None:
    with (
        kstore.open_log(tmp_path, shared=True) as one,
        kstore.open_log(tmp_path, shared=True) as two,
        kstore.open_log(tmp_path, read_only=True) as reader,
    ):
        one.append(b"a")
        two.append(b"b")
        assert values(reader) == [b"a", b"b"]


def test_who_shares_and_who_does_not_are_never_in_together(tmp_path: Path) -> None:
    for_all = pytest.raises(LogDirLockedError, match="shared=True in all of them")
    there_too = pytest.raises(
        LogDirLockedError, match=r"not open it as shared.*shared=True in both"
    )
    with kstore.open_log(tmp_path, shared=True), for_all:
        kstore.open_log(tmp_path)
    with kstore.open_log(tmp_path), there_too:
        kstore.open_log(tmp_path, shared=True)
    with kstore.open_log(tmp_path, shared=True) as keeper:
        guest = kstore.open_log(tmp_path, shared=True)
        keeper.close()
        with pytest.raises(LogDirLockedError):  # no process may own it alone now
            kstore.open_log(tmp_path)
        guest.close()
    with kstore.open_log(tmp_path):
        pass


def test_the_flush_policy_is_the_same_for_all(tmp_path: Path) -> None:
    refused = pytest.raises(ValueError, match='flush="always"')
    with kstore.open_log(tmp_path, shared=True, flush="always"), refused:
        kstore.open_log(tmp_path, shared=True)


def test_read_only_and_shared_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read_only and shared"):
        kstore.open_log(tmp_path, shared=True, read_only=True)


def test_only_the_keeper_cuts_and_the_others_follow(tmp_path: Path) -> None:
    settings = {"shared": True, "segment_bytes": 300, "cleanup_policy": "compact"}
    with kstore.open_log(tmp_path, **settings) as keeper:  # noqa: SIM117 (in this order)
        with kstore.open_log(tmp_path, **settings) as guest:
            for number in range(30):
                guest.append(b"%d" % number, b"key%d" % (number % 4))
            for change in (
                lambda: guest.truncate(3),
                lambda: guest.delete_before(3),
                lambda: guest.restart(3),
                guest.enforce_retention,
                guest.compact,
                lambda: guest.log_dir.delete(TopicPartition("log", 0)),  # type: ignore[attr-defined]
            ):
                with pytest.raises(NotKeeperError, match=f"pid {os.getpid()} "):
                    change()
            keeper.delete_before(5)
            assert guest.log_start_offset == 5
            assert next(r.offset for r in guest.records()) == 5
            keeper.compact()
            assert [r.offset for r in guest.records()] == [r.offset for r in keeper.records()]
            assert len(list(guest.records())) < 25
            keeper.truncate(20)
            assert guest.append(b"new", b"k") == 20
            assert values(keeper)[-1] == b"new"
            keeper.restart(100)
            assert guest.append(b"newer", b"k") == 100
            assert values(keeper) == values(guest) == [b"newer"]


def test_a_log_that_the_keeper_deletes_is_gone_for_all(tmp_path: Path) -> None:
    with open_log_dir(tmp_path, shared=True) as one, open_log_dir(tmp_path, shared=True) as two:
        log = two.log("t")
        log.append(b"x")
        one.delete(TopicPartition("t", 0))
        with pytest.raises(LogNotFoundError, match="deleted"):
            log.append(b"y")
        log.close()
        again = two.log("t")
        assert again.append(b"z") == 0
        assert values(one.log("t")) == [b"z"]


def test_another_takes_over_when_the_keeper_closes(tmp_path: Path) -> None:
    keeper = kstore.open_log(tmp_path, shared=True, segment_bytes=300)
    guest = kstore.open_log(tmp_path, shared=True, segment_bytes=300)
    for number in range(20):
        guest.append(b"%d" % number)
    keeper.close()
    until(lambda: guest.log_dir.state.keeper)  # type: ignore[attr-defined]
    guest.delete_before(7)
    guest.append(b"x")
    guest.close()
    with kstore.open_log(tmp_path) as alone:
        assert alone.recovery.scanned_bytes == 0
        assert (alone.log_start_offset, alone.log_end_offset) == (7, 21)


def test_another_takes_over_when_the_keeper_is_killed(tmp_path: Path) -> None:
    keeper = child(tmp_path, "log.append(b'k')")
    assert keeper.line() == "done"
    with kstore.open_log(tmp_path, shared=True) as log:
        with pytest.raises(NotKeeperError, match=f"pid {keeper.process.pid} "):
            log.truncate(0)
        keeper.end()
        until(lambda: log.log_dir.state.keeper)  # type: ignore[attr-defined]
        log.append(b"l")
        assert log.truncate(1) == 1
        assert values(log) == [b"k"]


def test_the_keeper_looks_after_logs_that_only_others_have_open(tmp_path: Path) -> None:
    with (
        open_log_dir(tmp_path, shared=True) as keeper,
        open_log_dir(tmp_path, shared=True) as other,
    ):
        log = other.log("t")
        log.append(b"x")
        until(lambda: keeper.index.state("t-0") is not None)
        log.append(b"y")
        until(lambda: keeper.index.state("t-0").next_offset == 2)  # type: ignore[union-attr]


TORN = """
core = log.core
core.__enter__()
file = os.open(core.active.path, os.O_WRONLY)
os.pwrite(file, bytes.fromhex({data!r}), core.active.size_bytes)
print("torn", flush=True)
os.kill(os.getpid(), signal.{kind})
time.sleep(600)
"""


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("whole", [False, True])
def test_a_writer_killed_between_its_write_and_saying_so(tmp_path: Path, whole: bool) -> None:
    """A torn batch is cut off; a complete one may have been read, and stays."""
    with kstore.open_log(tmp_path / "other") as log:
        log.append_many([b"0", b"1"])
        data = log.read_batches(0)
    with kstore.open_log(tmp_path, shared=True) as log:
        assert log.append_many([b"a", b"b"]).last_offset == 1
        data = (2).to_bytes(8, "big") + data[8:]
        data = data if whole else data[:-3]
        writer = child(tmp_path, TORN.format(data=data.hex(), kind="SIGKILL"))
        assert writer.line() == "torn"
        writer.end()
        expected = [b"a", b"b", b"0", b"1"] if whole else [b"a", b"b"]
        assert log.append(b"c") == len(expected)
        assert values(log) == [*expected, b"c"]
    with kstore.open_log(tmp_path) as log:
        assert values(log) == [*expected, b"c"]
        assert log.recovery.truncated_bytes == 0


def test_a_writer_that_is_stopped_with_the_lock_is_waited_for(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, shared=True) as log:
        log.append(b"a")
        writer = child(tmp_path, TORN.format(data="00", kind="SIGSTOP"))
        assert writer.line() == "torn"
        offsets: list[int] = []
        waits = threading.Thread(target=lambda: offsets.append(log.append(b"b")))
        waits.start()
        waits.join(0.3)
        assert not offsets
        assert values(log) == [b"a"]  # a reader of known records does not wait
        writer.process.send_signal(signal.SIGKILL)
        waits.join(30)
        assert offsets == [1]
        writer.end()


def test_waiters_hear_of_appends_of_other_processes(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, shared=True) as log:
        heard: list[bool] = []
        waits = threading.Thread(target=lambda: heard.append(log.wait(0, 60)))
        waits.start()
        writer = child(tmp_path, "log.append(b'x')")
        waits.join(60)
        assert heard == [True]
        assert not log.wait(1, 0.01)
        writer.end()


def test_with_flush_always_nobody_sees_what_is_not_on_the_disk(tmp_path: Path) -> None:
    settings = {"shared": True, "flush": "always"}
    with kstore.open_log(tmp_path, **settings) as one, kstore.open_log(tmp_path, **settings) as two:
        one.core.append_records([b"x"], 0, 0)  # as `append`, without the sync
        assert (two.log_end_offset, two.high_watermark) == (1, 0)
        assert values(two) == []
        assert two.append(b"y") == 1  # its sync covers both
        assert one.high_watermark == 2
        assert values(one) == [b"x", b"y"]
        with kstore.open_log(tmp_path, read_only=True) as reader:
            assert values(reader) == [b"x", b"y"]


def test_threads_and_openings_take_turns(tmp_path: Path) -> None:
    logs = [kstore.open_log(tmp_path, shared=True, segment_bytes=5_000) for _ in range(3)]

    def work(log: Log, name: int) -> None:
        for number in range(200):
            log.append(b"%d %d" % (name, number))

    threads = [
        threading.Thread(target=work, args=(log, at * 2 + twice))
        for at, log in enumerate(logs) for twice in range(2)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(v or b"").split() for v in values(logs[0])]
    for log in logs:
        log.close()
    assert len(found) == 1200
    for name in range(6):
        assert [int(n) for by, n in found if int(by) == name] == list(range(200))


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, shared=True) as log:
        log.append(b"a")
        pid = os.fork()
        if pid == 0:
            try:
                try:
                    log.append(b"no")
                except LogClosedError:
                    own = kstore.open_log(tmp_path, shared=True)
                    own.append(b"b")
                    own.close()
                    os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert log.append(b"c") == 2
        assert values(log) == [b"a", b"b", b"c"]


def test_who_syncs_up_to_an_offset_that_another_cuts_off_comes_to_an_end(tmp_path: Path) -> None:
    keeper = kstore.open_log(tmp_path, shared=True)
    guest = kstore.open_log(tmp_path, shared=True)
    guest.append_many([b"a", b"b", b"c"])
    end = guest.core.log_end_offset
    keeper.truncate(1)
    guest.sync_until(end)
    guest.close()
    keeper.close()


def test_who_is_behind_all_that_is_left_loads_the_log_anew(tmp_path: Path) -> None:
    keeper = kstore.open_log(tmp_path, shared=True, segment_bytes=300)
    guest = kstore.open_log(tmp_path, shared=True, segment_bytes=300)
    for number in range(20):
        keeper.append(b"%d" % number)
    keeper.delete_before(15)
    assert guest.append(b"x") == 20
    assert values(guest) == values(keeper) == [*(b"%d" % n for n in range(15, 20)), b"x"]
    guest.close()
    keeper.close()
