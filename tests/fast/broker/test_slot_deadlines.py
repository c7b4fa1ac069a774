"""Requests that wait until some time share one timer."""

from __future__ import annotations

import pytest

from tests.broker.harness.plane_harness import Plane
from tests.fast.broker.test_fetch_path import append, poll
from tests.record_requests import fetch_part as part


def test_fetches_that_wait_have_one_timer(plane: Plane) -> None:
    """To set and cancel one for each costs more than all else about a short wait."""
    clients = [plane.client() for _ in range(5)]
    for client in clients:
        poll(client, part())
    for _ in range(3):
        append(plane, 1)
        plane.loop.turn()
        offset = plane.partition().log_end_offset
        for client in clients:
            assert len(client.answers()) == 1
            poll(client, part(offset))
    assert [timer.delay_s for timer in plane.loop.timers] == [0.5]
    plane.loop.now_ms += 100
    late = plane.client()
    poll(late, part(partition=1))
    plane.loop.fire_timers()
    assert [len(client.answers()) for client in clients] == [1, 1, 1, 1, 1]
    assert plane.fetch.parked == 1
    [timer] = plane.loop.timers
    assert timer.delay_s == pytest.approx(0.1)
    plane.loop.fire_timers()
    assert len(late.answers()) == 1
    assert plane.loop.timers == []


def test_a_shorter_wait_moves_the_timer(plane: Plane) -> None:
    long, short = plane.client(), plane.client()
    poll(long, part())
    poll(short, part(), max_wait_ms=20)
    first, second = plane.loop.timers
    assert (first.cancelled, second.cancelled, second.delay_s) == (True, False, 0.02)
    plane.loop.fire_timers()
    assert (len(long.answers()), len(short.answers())) == (0, 1)
    [third] = plane.loop.timers
    assert third.delay_s == pytest.approx(0.48)
