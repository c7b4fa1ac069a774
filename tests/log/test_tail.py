"""Waiting for a log to grow: in the writer's process and in others, over rolls and deletions."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore._fast.shared.notify import Watch
from kstore.log import Log, LogClosedError, OffsetOutOfRangeError
from tests.beside.programs import Dialogue

WRITER = """
import sys, kstore
log = kstore.open_log(sys.argv[1], segment_bytes=300)
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Writer(Dialogue):
    """A process that has the log open for writing and obeys commands."""

    def __init__(self, path: Path) -> None:
        super().__init__([sys.executable, "-c", WRITER, str(path)])
        assert self.line() == "ready"

    def do(self, statement: str) -> None:
        """Run a statement there; ``log`` is the log."""
        assert self.does(statement) == "done"

    def close(self) -> None:
        self.process.communicate()


def later(action: Callable[[], object]) -> threading.Thread:
    """Do something from another thread, once this one waits."""
    thread = threading.Thread(target=lambda: (time.sleep(0.05), action()), daemon=True)
    thread.start()
    return thread


def test_an_append_wakes_a_waiter(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        later(lambda: log.append(b"x"))
        assert log.wait(0, 30)
        assert log.wait(0, 0)


def test_waiting_ends_after_the_timeout_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        assert not log.wait(0, 0.01)
        assert not log.wait(0, 0)
        assert log.core.on_append is None


def test_many_waiters_are_all_woken(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        found: list[bool] = []
        waiters = [threading.Thread(target=lambda: found.append(log.wait(0, 30))) for _ in range(8)]
        for waiter in waiters:
            waiter.start()
        later(lambda: log.append_many([b"x", b"y"])).join()
        for waiter in waiters:
            waiter.join()
        assert found == [True] * 8
        assert log.core.on_append is None


def test_another_callback_is_kept(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        calls: list[int] = []
        callback = lambda: calls.append(1)  # noqa: E731 (compared by identity below)
        log.core.on_append = callback
        later(lambda: log.append(b"x"))
        assert log.wait(0, 30)
        assert calls == [1]
        assert log.core.on_append is callback


def test_offsets_outside_the_log_are_refused_at_once(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many([b"x"] * 5)
        log.delete_before(3)
        for offset in (2, 6):
            with pytest.raises(OffsetOutOfRangeError):
                log.wait(offset, 30)


def test_a_cut_below_the_waiter_ends_its_waiting(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        for _ in range(5):
            log.append(b"x")
        later(lambda: log.truncate(2))
        with pytest.raises(OffsetOutOfRangeError):
            log.wait(5, 30)


def test_closing_ends_all_waiting(tmp_path: Path) -> None:
    log = kstore.open_log(tmp_path)
    later(log.close)
    with pytest.raises(LogClosedError):
        log.wait(0, 30)


def test_following_gives_what_comes_and_ends_when_nothing_does(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=200) as log:
        log.append(b"0")

        def append() -> None:
            for number in range(1, 30):
                log.append(b"%d" % number)

        thread = later(append)
        found = []
        for record in log.follow(timeout=5):
            found.append(record.value)
            if len(found) == 30:
                break
        thread.join()
        assert found == [b"%d" % number for number in range(30)]
        assert list(log.follow(30, timeout=0.01)) == []


@pytest.fixture
def writer(tmp_path: Path) -> Writer:  # type: ignore[misc]
    made = Writer(tmp_path)
    yield made
    if made.process.poll() is None:
        made.close()


def reader(path: Path) -> Log:
    """The log, for reading only."""
    return kstore.open_log(path, read_only=True)


def test_another_processs_appends_wake_a_reader(tmp_path: Path, writer: Writer) -> None:
    with reader(tmp_path) as log:
        for number in range(20):
            appending = later(lambda: writer.do("log.append(b'x' * 50)"))
            assert log.wait(number, 30)
            appending.join()
            assert [r.value for r in log.read(number)] == [b"x" * 50]


def test_a_reader_follows_over_rolls_and_a_new_writer(tmp_path: Path, writer: Writer) -> None:
    with reader(tmp_path) as log:
        writer.do("for n in range(10): log.append(b'%d' % n * 20)")
        assert len(list(log.follow(timeout=0.2))) == 10
        writer.do("log.roll(); log.append(b'after a roll')")
        assert [r.value for r in log.follow(10, timeout=0.2)] == [b"after a roll"]
        writer.end()
        assert not log.wait(11, 0.05)
        second = Writer(tmp_path)
        appending = later(lambda: second.do("log.append(b'of the second')"))
        assert log.wait(11, 30)
        appending.join()
        assert [r.value for r in log.read(11)] == [b"of the second"]
        second.close()


def test_a_reader_is_told_of_deletion_and_truncation(tmp_path: Path, writer: Writer) -> None:
    with reader(tmp_path) as log:
        writer.do("for n in range(10): log.append(b'%d' % n * 20)")
        assert log.wait(9, 30)
        truncating = later(lambda: writer.do("log.truncate(4)"))
        with pytest.raises(OffsetOutOfRangeError):
            log.wait(10, 30)
        truncating.join()  # its answer is read before the next statement's
        writer.do("for n in range(10): log.append(b'new %d' % n)")
        assert [r.value for r in log.records(4)] == [b"new %d" % n for n in range(10)]
        writer.do("log.delete_before(8)")
        assert log.wait(9, 30)
        with pytest.raises(OffsetOutOfRangeError):
            log.wait(2, 0)


def test_waiting_readers_cost_no_processor_time(tmp_path: Path, writer: Writer) -> None:
    with reader(tmp_path) as log:
        log.wait(0, 0.01)
        before = time.thread_time()
        assert not log.wait(0, 0.3)
        assert time.thread_time() - before < 0.1


def test_without_inotify_the_reader_looks_now_and_then(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> Watch:
        raise OSError(24, "inotify instances are used up", path)

    monkeypatch.setattr("kstore.log.tail.Watch", refuse)
    with reader(tmp_path) as log:
        appending = later(lambda: writer.do("log.append(b'x')"))
        assert log.wait(0, 30)
        appending.join()


def test_a_reader_keeps_its_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To close one takes the kernel long: a follower would be late by that each time."""
    made: list[Watch] = []

    def count(path: str) -> Watch:
        made.append(Watch(path))
        return made[-1]

    monkeypatch.setattr("kstore.log.tail.Watch", count)
    with kstore.open_log(tmp_path) as log:
        with reader(tmp_path) as follower:
            for offset in range(5):
                assert not follower.wait(offset, 0.01)
                log.append(b"x")
                assert follower.wait(offset, 30)
            assert len(made) == 1
            threads = [threading.Thread(target=follower.wait, args=(5, 30)) for _ in range(6)]
            for thread in threads:
                thread.start()
            while len(made) < 6:
                time.sleep(0.01)
            log.append(b"y")
            for thread in threads:
                thread.join()
        assert len(made) == 6
        assert all(watch.fd < 0 for watch in made)  # closed with the log


def test_a_watch_tells_of_writes_renames_and_removals(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path))
    assert not watch.wait(0)
    file = tmp_path / "a"
    for action in (
        lambda: file.write_bytes(b"x"),
        lambda: file.rename(tmp_path / "b"),
        (tmp_path / "b").unlink,
    ):
        action()
        assert watch.wait(10_000)
        assert not watch.wait(0)
    watch.close()
    watch.close()
    with pytest.raises(ValueError, match="closed"):
        watch.wait(0)
    with pytest.raises(FileNotFoundError):
        Watch(str(tmp_path / "missing"))


def test_a_signal_does_not_end_the_waiting(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path))
    old = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        later(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        assert not watch.wait(150)
    finally:
        signal.signal(signal.SIGUSR1, old)
        watch.close()


def test_a_log_that_ends_in_a_gap_is_waited_for(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many([b"x"] * 5)
        log.append_at(1000, [b"y"])
        assert log.truncate(500) == 500
        reader = kstore.open_log(tmp_path, read_only=True)
        for each in (log, reader):
            assert [record.offset for record in each.follow(timeout=0.05)] == [0, 1, 2, 3, 4]
            assert not each.wait(5, 0.01)
        cursor = log.cursor("reader")
        assert len(cursor.poll()) == 5
        thread = later(lambda: log.append(b"z"))
        assert [record.offset for record in cursor.poll(timeout=30)] == [500]
        thread.join()
        assert reader.wait(5, 30)
        reader.close()


def test_asyncio_follows_the_log(tmp_path: Path) -> None:
    async def follow(log: Log, count: int, offset: int | None) -> list[bytes | None]:
        found = []
        async for record in log.tail(offset):
            found.append(record.value)
            if len(found) == count:
                break
        return found

    async def both() -> None:
        with kstore.open_log(tmp_path) as log:
            log.append_many([b"0", b"1"])
            reader = kstore.open_log(tmp_path, read_only=True)
            late = [asyncio.create_task(follow(each, 2, None)) for each in (log, reader)]
            all_of_it = asyncio.create_task(follow(reader, 4, 0))
            await asyncio.sleep(0.05)
            log.append(b"2")
            await asyncio.sleep(0.05)
            log.append(b"3")
            assert await asyncio.gather(*late) == [[b"2", b"3"]] * 2
            assert await all_of_it == [b"0", b"1", b"2", b"3"]
            cancelled = asyncio.create_task(follow(log, 1, None))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            reader.close()

    asyncio.run(both())
