"""The times of the parts of requests: counts by API, reports, and to which part a wait belongs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kstore._fast.network.request_times import PARTS_BY_NAME, RequestTimes, TimedRequest
from kstore._fast.record.builder import build_batch
from kstore.protocol.logs.fetch import FetchRequest
from kstore.protocol.logs.produce import ProduceRequest
from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from tests.broker.harness.plane_harness import Plane
from tests.record_requests import fetch_request, produce_request

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
PAUSE_US = 5000


@pytest.fixture
def told(plane) -> list[tuple[Any, TimedRequest]]:
    found: list[tuple[Any, TimedRequest]] = []
    plane.plane.times.tell = lambda connection, timed: found.append((connection, timed))
    plane.plane.times.set_chance(0, 1.0)
    return found


def produce(acks: int = 1) -> ProduceRequest:
    return produce_request("t", build_batch([b"x"], timestamp=1), acks=acks)


def fetch(offset: int = 0) -> FetchRequest:
    return fetch_request("t", offset, max_wait_ms=10_000, max_bytes=1 << 20, session_epoch=-1)


def counted(plane: Plane) -> dict[int, int]:
    return {key: parts["total"][1] for key, parts in plane.plane.times.by_api().items()}


def pause() -> None:
    time.sleep(PAUSE_US / 1e6)


def test_every_answered_request_is_counted_under_its_api(plane):
    client = plane.client()
    client.call(9, produce())
    client.call(9, produce())
    client.call(11, fetch())
    assert counted(plane) == {PRODUCE: 2, FETCH: 1}


def test_the_buckets_of_each_part_hold_every_request_and_its_parts_sum_to_the_total(plane):
    client = plane.client()
    for _ in range(3):
        client.call(9, produce())
    parts = plane.plane.times.by_api()[PRODUCE]
    assert tuple(parts) == PARTS_BY_NAME
    assert all(count == sum(counts) == 3 for _, count, counts in parts.values())
    assert parts["total"][0] == sum(row[0] for name, row in parts.items() if name != "total")


def test_a_request_that_was_answered_at_once_waited_for_nobody(plane):
    plane.client().call(9, produce())
    parts = plane.plane.times.by_api()[PRODUCE]
    assert [parts[name][0] for name in ("disk", "remote", "behind")] == [0, 0, 0]


def test_a_fetch_that_waits_for_data_counts_the_wait_as_remote(plane):
    client = plane.client()
    client.send(11, fetch())
    pause()
    assert FETCH not in counted(plane)  # it is not over
    plane.client().call(9, produce())
    plane.loop.turn()
    assert len(client.answers()) == 1
    parts = plane.plane.times.by_api()[FETCH]
    assert parts["remote"][0] >= PAUSE_US
    assert parts["disk"][0] == 0


def test_an_answer_behind_an_earlier_one_counts_that_wait(plane, told):
    plane.server.answers[API_VERSIONS] = b""
    client = plane.client()
    client.send(11, fetch())
    client.send(0, ApiVersionsRequest())
    pause()
    plane.client().call(9, produce())
    plane.loop.turn()
    [behind] = [timed for _, timed in told if timed.api_key == API_VERSIONS]
    assert behind.part_us("behind") >= PAUSE_US
    assert behind.part_us("remote") == 0


def test_a_request_that_is_held_and_comes_again_is_one_request(plane, told):
    client = plane.client()

    def answer() -> bytes | None:
        if len(plane.server.dispatched) == 1:
            client.connection.hold()
            return None
        return b""

    plane.server.answers[API_VERSIONS] = answer
    client.send(0, ApiVersionsRequest())
    pause()
    client.connection.admitted()
    plane.loop.turn()
    [(_, timed)] = told
    assert timed.part_us("remote") >= PAUSE_US
    assert counted(plane) == {API_VERSIONS: 1}


def test_produce_requests_that_are_appended_together_are_timed_one_by_one(plane, told):
    client = plane.client()
    client.feed(b"".join(client.frame(9, produce()) for _ in range(5)))
    assert plane.plane.runs.runs == 1
    plane.loop.turn()
    assert counted(plane) == {PRODUCE: 5}
    assert [timed.correlation_id for _, timed in told] == [1, 2, 3, 4, 5]


def test_a_run_whose_requests_are_not_told_counts_each_of_them(plane):
    client = plane.client()
    client.feed(b"".join(client.frame(9, produce()) for _ in range(5)))
    assert plane.plane.runs.runs == 1
    parts = plane.plane.times.by_api()[PRODUCE]
    assert all(count == sum(counts) == 5 for _, count, counts in parts.values())


def test_a_request_without_an_answer_is_over_when_it_was_handled(plane, told):
    plane.client().send(9, produce(acks=0))
    plane.loop.turn()
    [(_, timed)] = told
    assert timed.part_us("send") == 0
    assert not timed.lost


def test_a_request_whose_connection_ends_before_its_answer_is_told_as_lost(plane, told):
    client = plane.client()
    client.send(11, fetch())
    client.connection.connection_lost(None)
    plane.loop.turn()
    [(connection, timed)] = told
    assert connection is client.connection
    assert timed.lost


def test_who_is_told_learns_the_client_and_the_request(plane, told):
    client = plane.client()
    client.call(9, produce())
    plane.loop.turn()
    [(connection, timed)] = told
    assert connection is client.connection
    assert (timed.api_key, timed.api_version, timed.correlation_id) == (PRODUCE, 9, 1)
    assert timed.client_id == b"me"
    assert timed.size_bytes > 60
    assert timed.chosen == 1


def test_nothing_is_told_while_nobody_wants_to_know(plane):
    plane.plane.times.set_chance(0, 1.0)
    plane.client().call(9, produce())
    assert plane.loop.soon == []


def test_chance_chooses_about_as_many_as_the_rate_says(plane, told):
    plane.plane.times.set_chance(0, 0.25)
    client = plane.client()
    for _ in range(1000):
        client.call(11, fetch(offset=1))  # out of range: answered at once
    plane.loop.turn()
    assert 200 < len(told) < 300


def test_two_chances_choose_each_for_itself(plane, told):
    plane.plane.times.set_chance(0, 0.5)
    plane.plane.times.set_chance(1, 0.5)
    client = plane.client()
    for _ in range(400):
        client.call(11, fetch(offset=1))
    plane.loop.turn()
    assert {timed.chosen for _, timed in told} == {1, 2, 3}


def test_a_rate_outside_of_0_to_1_is_refused():
    with pytest.raises(ValueError, match="0 to 1"):
        RequestTimes().set_chance(0, 1.5)


def test_a_slow_request_is_told_at_any_rate(plane, told):
    plane.plane.times.set_chance(0, 0.0)
    plane.plane.times.slow_us = 1
    plane.client().call(9, produce())
    plane.loop.turn()
    assert [(timed.slow, timed.chosen) for _, timed in told] == [(True, 0)]


def test_a_fetch_is_not_slow_because_it_waits_for_data(plane, told):
    plane.plane.times.slow_us = PAUSE_US
    client = plane.client()
    client.send(11, fetch())
    pause()
    plane.client().call(9, produce())
    plane.loop.turn()
    [timed] = [timed for _, timed in told if timed.api_key == FETCH]
    own_us = timed.part_us("total") - timed.part_us("remote")
    assert timed.part_us("total") >= PAUSE_US
    assert timed.slow == (own_us >= PAUSE_US)
