"""A broker that cannot reach the store: whom it asks, what it concludes and promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.membership.outage import Outage
from kstore.errors import ErrorCode, NetworkError
from kstore.protocol.controller.broker_requests import BrokerHeartbeatResponse

Patch = pytest.MonkeyPatch
SESSION_S = 12.0
ROUND_S, PROMISE_S = 1.0, 3.0
SEES = BrokerHeartbeatResponse()
PROMISES = BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)


class Clock:
    """The time of a loop, which advances when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)


class Place:
    """Broker 1 of three. It cannot reach the store, or is in doubt; the test answers for others."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = SimpleNamespace(away=True, in_doubt=False, over=False)
        self.answers: dict[int, Any] = {2: PROMISES, 3: PROMISES}
        self.asked: list[int] = []
        self.given_up: list[str] = []
        self.said: list[str] = []
        node: Any = SimpleNamespace(node_id=1, loop=self.clock, report=self.said.append)
        image = SimpleNamespace(brokers={1: None, 2: None, 3: None})
        metadata: Any = SimpleNamespace(image=image)
        store: Any = self.store
        peers: Any = lambda: self  # noqa: E731
        self.outage = Outage(node, store, metadata, peers, self, SESSION_S)

    broker_epoch = 7

    def give_up(self, why: str) -> None:
        self.given_up.append(why)
        self.store.over = True

    async def ask(self, node_id: int, request: Any, timeout_s: float) -> Any:
        self.asked.append(node_id)
        answer = self.answers[node_id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def rounds(self, count: int, each_s: float = ROUND_S) -> None:
        """Wait until the others were asked this number of times."""
        for _ in range(count):
            asked = len(self.asked)
            while len(self.asked) < asked + 2 and not self.store.over:
                await real_sleep(0)
            for _ in range(10):
                await real_sleep(0)
            self.clock.now += each_s


real_sleep = asyncio.sleep


async def _at_once(seconds: float) -> None:
    await real_sleep(0)


def run(story: Callable[[Place], Coroutine[Any, Any, None]], monkeypatch: Patch) -> Place:
    monkeypatch.setattr("kstore.broker.runtime.membership.outage.asyncio.sleep", _at_once)

    async def tell() -> Place:
        place = Place()
        place.outage.note()
        await story(place)
        place.outage.close()
        return place

    return asyncio.run(tell())


def test_it_goes_on_as_long_as_all_others_promise(monkeypatch: Patch) -> None:
    async def story(place: Place) -> None:
        await place.rounds(2)
        place.store.in_doubt = True
        place.outage.note()
        await place.rounds(20)
        assert place.outage.sure

    place = run(story, monkeypatch)
    assert not place.given_up
    assert len(place.said) == 1


def test_it_gives_up_when_its_session_is_in_doubt_and_another_sees_the_store(
    monkeypatch: Patch,
) -> None:
    async def story(place: Place) -> None:
        place.answers[3] = SEES
        await place.rounds(3)
        assert place.outage.sure  # the session is certainly alive
        assert not place.given_up
        place.store.in_doubt = True
        place.outage.note()
        assert len(place.given_up) == 1

    run(story, monkeypatch)


def test_a_promise_holds_after_the_store_is_back_for_others(monkeypatch: Patch) -> None:
    """This broker reconnects a moment later than the others: it need not start over."""

    async def story(place: Place) -> None:
        place.store.in_doubt = True
        await place.rounds(2)
        place.answers = {2: SEES, 3: SEES}
        await place.rounds(1, each_s=0.0)
        assert place.outage.sure
        assert not place.given_up
        place.store.away = place.store.in_doubt = False
        place.outage.note()
        assert place.outage.sure

    place = run(story, monkeypatch)
    assert not place.given_up
    assert len(place.said) == 2


def test_one_that_is_silent_may_have_been_elected_and_one_that_does_not_run_may_not(
    monkeypatch: Patch,
) -> None:
    refused = NetworkError("refused")
    refused.__cause__ = ConnectionRefusedError()

    async def story(place: Place) -> None:
        place.store.in_doubt = True
        place.answers[3] = refused
        await place.rounds(10)
        assert place.outage.sure
        place.answers[3] = NetworkError("lost")
        await place.rounds(10)
        assert not place.outage.sure
        # It continues to lead, as in Kafka, and answers nothing by itself.
        assert not place.given_up

    run(story, monkeypatch)


def test_who_said_that_it_does_not_see_the_store_elects_nobody_for_a_while(
    monkeypatch: Patch,
) -> None:
    async def story() -> None:
        place = Place()
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            place.clock.now += seconds

        monkeypatch.setattr("kstore.broker.runtime.membership.outage.asyncio.sleep", sleep)

        place.store.away = False
        assert place.outage.sees_the_store()
        await place.outage.keep_promise()
        place.store.away = True
        assert not place.outage.sees_the_store()
        place.clock.now += 1.0
        place.store.away = False
        await place.outage.keep_promise()
        assert slept == [PROMISE_S - 1.0]

    asyncio.run(story())
