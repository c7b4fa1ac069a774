"""What the simulated remover waits for before it empties retired partitions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.history import History
from tests.sim.workloads.expanding import WIDE_COUNT, Remover, ShrinkingProducer

LEFT = 3


class Client:
    """The broker says that only the remaining partitions are there."""

    async def until_done(self, ask: Any) -> Any:
        return SimpleNamespace(producer_id=1, producer_epoch=0)

    async def refresh(self, topic: str) -> bool:
        return True

    async def metadata(self, topic: str) -> Any:
        return SimpleNamespace(partitions=range(LEFT))


class QuickRemover(Remover):
    """All groups have read, and the topic grows at once."""

    async def _all_read(self, places: Any) -> bool:
        return True

    async def _grow(self) -> None:
        pass

    async def _check_new(self, place: Any) -> None:
        pass


class WaitsError(Exception):
    """The remover waits."""


def removed(monkeypatch: pytest.MonkeyPatch, producer: ShrinkingProducer) -> int:
    """How many partitions were removed; WaitsError if it waits."""

    async def wait(delay_s: float) -> None:
        raise WaitsError

    monkeypatch.setattr(asyncio, "sleep", wait)
    shrinker: Any = SimpleNamespace(topic="t", done=True, left=LEFT)
    remover = QuickRemover(producer.client, producer.history, shrinker, producer, [])
    remover.stopping = True
    asyncio.run(remover.run())
    return producer.history.counts["retired partitions deleted"]


@pytest.fixture
def producer() -> ShrinkingProducer:
    client: Any = Client()
    refusals: Any = None
    return ShrinkingProducer(client, History(), "t", refusals)


def test_a_producer_that_ended_need_not_know_the_new_count(
    monkeypatch: pytest.MonkeyPatch, producer: ShrinkingProducer
) -> None:
    """Its last request may have been answered after the contraction, by a slow network."""
    producer.stopping = True
    asyncio.run(producer.run())
    assert producer.count == WIDE_COUNT
    assert removed(monkeypatch, producer) == WIDE_COUNT - LEFT


@pytest.mark.parametrize(
    ("count", "unanswered", "waits"),
    [(WIDE_COUNT, set(), True), (LEFT, {LEFT}, True), (LEFT, {LEFT - 1}, False)],
)
def test_retired_partitions_stay_while_a_producer_may_write_to_them(
    monkeypatch: pytest.MonkeyPatch,
    producer: ShrinkingProducer,
    count: int,
    unanswered: set[int],
    waits: bool,
) -> None:
    """A request that is repeated to a deleted partition is never answered with its fate."""
    producer.count, producer.unanswered = count, unanswered
    if waits:
        with pytest.raises(WaitsError):
            removed(monkeypatch, producer)
    else:
        assert removed(monkeypatch, producer) == WIDE_COUNT - LEFT
