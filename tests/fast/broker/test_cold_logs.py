"""A fetch that must open a file, or examine damage, waits for a thread; others continue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.log.recovery import corruption, segment_index
from tests.broker.harness.plane_harness import Client, Plane
from tests.fast.broker.test_fetch_path import append, request
from tests.record_requests import fetch_part as part
from tests.record_requests import only

SEGMENTS = 4
IN_EACH = 5
SIZE = 30_000


class Aside:
    """What was given to the thread; it runs when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Callable[[], object], Future[object]]] = []
        self.ran: list[str] = []

    def run(self, what: str, call: Callable[[], object]) -> Future[object]:
        done: Future[object] = Future()
        self.calls.append((what, call, done))
        return done

    def next(self) -> None:
        """Run the oldest call in a thread, and deliver its result on this one, as the loop does."""
        what, call, done = self.calls.pop(0)
        with ThreadPoolExecutor(1) as thread:
            problem = thread.submit(call).exception()
        self.ran.append(what)
        if problem is not None:
            done.set_exception(problem)
        else:
            done.set_result(None)


class Closed:
    """A plane whose log has sealed segments that were not opened since its start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        first = Plane(folder)
        self.batches = []
        for _ in range(SEGMENTS):
            self.batches += [append(first, 1, size=SIZE) for _ in range(IN_EACH)]
            first.partition().log.roll()
        append(first, 1, partition=1)
        first.close()
        self.plane = Plane(folder)
        self.aside = Aside()
        self.plane.dir.pages.serve(lambda *_: None, lambda *_: None, self.aside.run)
        self.plane.dir.pages.asks_by = "nothing"  # the bytes count as in memory
        self.log = self.plane.partition().log

    def fetch(self, client: Client, offset: int, **more: Any) -> int:
        return client.send(12, request(12, part(offset), **{"max_wait_ms": 1000, **more}))


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Closed]:
    made = Closed(tmp_path)
    yield made
    made.plane.close()


def answer(client: Client) -> tuple[int, bytes]:
    [(_, response)] = client.answers()
    found = only(response)
    return found.error_code, found.records or b""


def test_a_segment_file_is_opened_by_a_thread(closed: Closed) -> None:
    client, other = closed.plane.client(), closed.plane.client()
    closed.fetch(client, 0)
    assert client.answers() == []
    assert not closed.log.segments[0].is_open
    other.send(12, request(12, part(0, partition=1)))
    opened = len(closed.aside.calls)
    while not other.answers():
        # Its separate file, if that was closed.
        closed.aside.calls.insert(0, closed.aside.calls.pop())
        closed.aside.next()
    assert client.answers() == []
    while closed.aside.calls:
        closed.aside.next()
    assert answer(client) == (ErrorCode.NONE, b"".join(closed.batches[:IN_EACH]))
    assert opened >= 1
    assert all(what.startswith("reading from ") for what in closed.aside.ran)
    assert closed.log.segments[0].is_open


def test_many_who_lack_the_same_have_it_fetched_once(closed: Closed) -> None:
    clients = [closed.plane.client() for _ in range(5)]
    for client in clients:
        closed.fetch(client, 0)
    assert len(closed.aside.calls) == 1
    while closed.aside.calls:
        closed.aside.next()
    assert [answer(client)[0] for client in clients] == [ErrorCode.NONE] * 5
    assert len(closed.aside.ran) <= 2


def test_a_part_of_an_index_is_loaded_by_a_thread(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    load = closed.log.local._fallbacks.load_index

    def seen(*given: Any) -> None:
        threads.append(threading.get_ident())
        load(*given)

    given = closed.log.local._fallbacks._replace(load_index=seen)
    monkeypatch.setattr(closed.log.local, "_fallbacks", given)
    client = closed.plane.client()
    closed.fetch(client, IN_EACH + 2)
    while closed.aside.calls:
        closed.aside.next()
    assert answer(client) == (ErrorCode.NONE, b"".join(closed.batches[IN_EACH + 2 : 2 * IN_EACH]))
    assert threads
    assert threading.get_ident() not in threads


def test_an_index_that_is_wrong_is_made_anew_by_a_thread(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    reindex = segment_index.reindex

    def seen(*given: Any) -> None:
        threads.append(threading.get_ident())
        reindex(*given)

    monkeypatch.setattr(segment_index, "reindex", seen)
    segment = closed.log.segments[1]
    entries = segment.index_entries()
    closed.aside.run("", lambda: segment_index.load_whole(closed.log.local, segment))
    closed.aside.next()
    entries = bytearray(segment.all_entries())
    for at in range(16, len(entries), 16):
        entries[at + 4] ^= 1  # a position that no batch has
    segment.load(bytes(entries), 0)
    client = closed.plane.client()
    closed.fetch(client, IN_EACH + 3)
    while closed.aside.calls:
        closed.aside.next()
    assert answer(client) == (ErrorCode.NONE, b"".join(closed.batches[IN_EACH + 3 : 2 * IN_EACH]))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


# A header, which the check reads; a record, which the answer reads.
@pytest.mark.parametrize("at", [7, 200])
def test_damage_is_looked_at_by_a_thread(
    closed: Closed, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    threads: list[int] = []
    survey = corruption.survey

    def seen(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return survey(*given)

    monkeypatch.setattr(corruption, "survey", seen)
    file = Path(closed.log.segments[1].path)
    data = bytearray(file.read_bytes())
    data[len(closed.batches[0]) + at] ^= 2
    file.write_bytes(data)
    first, second = IN_EACH, IN_EACH + 1
    found = []
    # A repeated request checks the checksums.
    for offset in (first, first, second, second, second + 1):
        client = closed.plane.client()
        closed.fetch(client, offset)
        while closed.aside.calls:
            closed.aside.next()
        found.append((offset, answer(client)))
    codes = {offset: code for offset, (code, _) in found}
    assert codes == {first: 0, second: ErrorCode.CORRUPT_MESSAGE, second + 1: 0}
    assert found[-1][1][1] != b""
    assert threads
    assert threading.get_ident() not in threads
    assert closed.plane.dir.damages == 1


def test_a_file_that_cannot_be_opened_is_a_storage_error(closed: Closed) -> None:
    path = Path(closed.log.segments[0].path)
    path.unlink()
    client = closed.plane.client()
    closed.fetch(client, 0)
    while closed.aside.calls:
        closed.aside.next()
    assert answer(client) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")


def test_a_segment_that_retention_removes_meanwhile_is_no_error(closed: Closed) -> None:
    client = closed.plane.client()
    closed.fetch(client, 0)
    closed.log.delete_before(2 * IN_EACH)
    while closed.aside.calls:
        closed.aside.next()
    assert answer(client)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert closed.plane.server.reports == []


def test_a_stop_answers_before_the_thread_has_ended(closed: Closed) -> None:
    client = closed.plane.client()
    closed.fetch(client, 0)
    closed.plane.fetch.answer_parked()
    assert answer(client) == (ErrorCode.NONE, b"")
    closed.aside.next()
    assert client.answers() == []


def test_a_log_whose_lock_is_held_is_read_and_looked_at(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder of the lock may wait for a disk, for example in an append."""
    batch = append(closed.plane, 1, size=SIZE)
    first = SEGMENTS * IN_EACH
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with closed.log.core:
            begun.set()
            end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    begun.wait()
    client = closed.plane.client()
    try:
        closed.fetch(client, IN_EACH + 2)
        while closed.aside.calls:
            closed.aside.next()
        sealed = answer(client)
        closed.fetch(client, first)
        assert answer(client) == (ErrorCode.NONE, batch)
        assert (closed.log.damaged_parts(), closed.log.lost_parts()) == ([], [])
    finally:
        end.set()
        holder.join()
    assert sealed == (ErrorCode.NONE, b"".join(closed.batches[IN_EACH + 2 : 2 * IN_EACH]))


def test_appends_go_on_while_damage_is_looked_at(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey = corruption.survey
    free: list[bool] = []

    def seen(*given: Any) -> Any:
        with ThreadPoolExecutor(1) as other:
            free.append(other.submit(append, closed.plane).exception(20) is None)
        return survey(*given)

    monkeypatch.setattr(corruption, "survey", seen)
    file = Path(closed.log.segments[1].path)
    data = bytearray(file.read_bytes())
    data[len(closed.batches[0]) + 200] ^= 2
    file.write_bytes(data)
    codes = []
    for _ in range(4):  # a repeated request checks the checksums
        client = closed.plane.client()
        closed.fetch(client, IN_EACH + 1)
        while closed.aside.calls:
            closed.aside.next()
        codes.append(answer(client)[0])
    assert codes[-1] == ErrorCode.CORRUPT_MESSAGE
    assert free == [True]
