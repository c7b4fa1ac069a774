"""A fetch of data that is not in the page cache waits for a thread; others continue."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.errors import ErrorCode
from tests.broker.harness.plane_harness import Client, Plane
from tests.fast.broker.test_fetch_path import append, request
from tests.fast.disk.dropped_pages import drop_pages
from tests.record_requests import fetch_part as part
from tests.record_requests import only

pytestmark = pytest.mark.on_disk

RECORDS = 100
SIZE = 20_000
PATIENCE_S = 60.0


class Readers:
    """add_reader and remove_reader of a loop that the test drives."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[[], None]] = {}

    def add(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.callbacks[descriptor] = callback

    def remove(self, descriptor: int) -> None:
        del self.callbacks[descriptor]

    def wait(self) -> None:
        """Wait for a descriptor and call its watcher."""
        ready, _, _ = select.select(list(self.callbacks), [], [], PATIENCE_S)
        assert ready
        for descriptor in ready:
            self.callbacks[descriptor]()


class Cold:
    """A plane with a log that is not in memory, as after a start of the machine."""

    def __init__(self, folder: Path) -> None:
        first = Plane(folder)
        self.batches = [append(first, 1, size=SIZE) for _ in range(RECORDS)]
        append(first, 1, partition=1)
        first.close()
        self.plane = Plane(folder)
        self.readers = Readers()
        self.pages = self.plane.dir.pages
        self.pages.serve(self.readers.add, self.readers.remove)
        self.path = self.plane.partition().log.segments[-1].path
        drop_pages(self.path)

    def fetch(self, client: Client, **more: Any) -> int:
        asked = {"max_wait_ms": 1000, **more}
        return client.send(12, request(12, part(0, max_bytes=3 * SIZE), **asked))


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Cold]:
    made = Cold(tmp_path)
    yield made
    made.plane.close()


def records(client: Client) -> bytes:
    [(_, response)] = client.answers()
    found = only(response)
    assert found.error_code == ErrorCode.NONE
    return found.records or b""


def test_a_cold_fetch_is_answered_when_it_was_read_in(cold: Cold) -> None:
    client = cold.plane.client()
    cold.fetch(client)
    assert client.answers() == []
    assert cold.pages.cold_reads == 1
    cold.readers.wait()
    assert records(client) == b"".join(cold.batches[:2])
    assert cold.plane.fetch.parked == 0


def test_others_are_answered_meanwhile_and_the_order_is_kept(cold: Cold) -> None:
    client, other = cold.plane.client(), cold.plane.client()
    first = cold.fetch(client)
    second = client.send(12, request(12, part(0, partition=1)))
    other.send(12, request(12, part(0, partition=1)))
    assert client.answers() == []
    assert len(records(other)) > 0
    cold.readers.wait()
    assert [number for number, _ in client.answers()] == [first, second]


def test_a_fetch_that_waits_for_nothing_waits_for_the_disk(cold: Cold) -> None:
    client = cold.plane.client()
    cold.fetch(client, max_wait_ms=0, min_bytes=0)
    cold.plane.loop.fire_timers()
    assert client.answers() == []
    cold.readers.wait()
    assert len(records(client)) > 0


def test_what_is_in_memory_is_not_kept_back_by_what_is_not(cold: Cold) -> None:
    client = cold.plane.client()
    both = request(12, part(0, max_bytes=3 * SIZE), part(0, partition=1), max_wait_ms=1000)
    client.send(12, both)
    [(_, response)] = client.answers()
    sizes = [len(p.records or b"") for p in response.responses[0].partitions]
    assert sizes[0] == 0
    assert sizes[1] > 0
    cold.readers.wait()
    client.send(12, both)
    [(_, response)] = client.answers()
    assert (response.responses[0].partitions[0].records or b"") == b"".join(cold.batches[:2])


def test_pages_that_are_dropped_again_are_not_waited_for_twice(cold: Cold) -> None:
    client = cold.plane.client()
    cold.fetch(client)
    ready, _, _ = select.select(list(cold.readers.callbacks), [], [], PATIENCE_S)
    assert ready
    drop_pages(cold.path)
    cold.readers.wait()
    assert records(client) == b"".join(cold.batches[:2])
    assert cold.pages.cold_reads == 1


def test_a_batch_larger_than_what_is_asked_for_is_read_in_whole(cold: Cold) -> None:
    client = cold.plane.client()
    client.send(12, request(12, part(0, max_bytes=1), max_wait_ms=1000))
    while not (answers := client.answers()):
        cold.readers.wait()
    assert (only(answers[0][1]).records or b"") == cold.batches[0]
    assert 1 <= cold.pages.cold_reads <= 2  # the second may have been read ahead


def test_who_reads_on_and_on_waits_for_the_first_bytes_only(cold: Cold) -> None:
    client = cold.plane.client()
    offset, found = 0, b""
    while offset < RECORDS:
        client.send(12, request(12, part(offset, max_bytes=6 * SIZE), max_wait_ms=1000))
        while not (answers := client.answers()):
            cold.readers.wait()
        data = only(answers[0][1]).records or b""
        found += data
        offset += len(data) // len(cold.batches[0])
    assert found == b"".join(cold.batches)
    assert cold.pages.ahead_bytes > SIZE * RECORDS // 2


def test_a_stop_answers_without_the_disk(cold: Cold) -> None:
    client = cold.plane.client()
    cold.fetch(client)
    cold.plane.fetch.answer_parked()
    assert records(client) == b""
    cold.readers.wait()
    assert client.answers() == []


def test_a_connection_that_is_gone_is_not_answered(cold: Cold) -> None:
    client = cold.plane.client()
    cold.fetch(client)
    client.connection.connection_lost(None)
    cold.readers.wait()
    assert client.raw_answers() == []
    assert cold.plane.fetch.parked == 0


def test_what_was_just_appended_is_not_asked_for(cold: Cold) -> None:
    client = cold.plane.client()
    data = append(cold.plane, 1, size=SIZE)
    client.send(12, request(12, part(RECORDS)))
    assert records(client) == data
    assert cold.pages.cold_reads == 0


def test_much_that_was_just_appended_can_be_out_of_memory(cold: Cold) -> None:
    client = cold.plane.client()
    batches = [append(cold.plane, 1, size=SIZE) for _ in range(20)]
    drop_pages(cold.path)
    client.send(12, request(12, part(RECORDS, max_bytes=3 * SIZE), max_wait_ms=1000))
    assert client.answers() == []
    assert cold.pages.cold_reads == 1
    cold.readers.wait()
    assert records(client) == b"".join(batches[:2])


def test_the_file_may_be_gone_when_it_was_read(cold: Cold) -> None:
    client = cold.plane.client()
    cold.fetch(client)
    cold.plane.partition().log.delete_before(RECORDS // 2)
    cold.readers.wait()
    [(_, response)] = client.answers()
    assert only(response).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("way", ["nowait", "nothing"])
def test_systems_that_count_no_pages(cold: Cold, way: str) -> None:
    cold.pages.asks_by = way
    client = cold.plane.client()
    cold.fetch(client)
    if cold.pages.cold_reads:
        cold.readers.wait()
    assert records(client) == b"".join(cold.batches[:2])
    assert way == "nowait" or cold.pages.cold_reads == 0
