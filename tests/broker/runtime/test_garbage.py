"""The garbage collector runs in small steps, however many objects exist, and collects all."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.log.log_core import LogCore
from kstore.broker.runtime import garbage
from kstore.broker.runtime.garbage import Garbage
from kstore.broker.state.metadata.topic_rules import NewTopic
from kstore.log.local.local_log import LocalLog
from tests.broker.api.requests.world import World, in_world

MANY = 100_000
MOST = garbage.THRESHOLDS[0] * (garbage.THRESHOLDS[1] + 3)


class Ring:
    def __init__(self) -> None:
        self.ring = self


@contextmanager
def collecting(requests: Callable[[], int] = lambda: 0) -> Iterator[list[int]]:
    """The number of objects that each collection that freezes looks at meanwhile."""
    looked: list[int] = []

    def begun(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] >= garbage.FREEZES_FROM:
            looked.append(len(gc.get_objects()))

    loop = asyncio.get_running_loop()
    collector = Garbage(loop, requests)
    gc.callbacks.append(begun)
    collector.start()
    try:
        yield looked
    finally:
        collector.stop()
        gc.callbacks.remove(begun)


def test_a_collection_looks_only_at_what_is_new() -> None:
    async def make() -> None:
        with collecting() as looked:
            kept = [[number] for number in range(MANY)]
        assert len(kept) == MANY
        assert len(looked) > MANY // MOST
        assert max(looked) < MOST

    asyncio.run(make())


def test_what_is_frozen_goes_with_its_last_reference() -> None:
    async def make() -> None:
        with collecting() as looked:
            kept = [{1} for _ in range(MANY)]
            frozen = gc.get_freeze_count()
            kept.clear()
            assert gc.get_freeze_count() < frozen - MANY // 2
        assert looked

    asyncio.run(make())


def test_rings_among_much_that_is_frozen_go_in_a_calm_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "CHECK_S", 0.01)
    monkeypatch.setattr(garbage, "CALM_S", 0.01)
    monkeypatch.setattr(garbage, "FEW_OBJECTS", -gc.get_freeze_count())
    asked = iter([1, 2, 3])
    known = 0

    def requests() -> int:
        nonlocal known
        known = next(asked, known)
        return known

    async def make() -> None:
        with collecting(requests):
            ring = Ring()
            gone = weakref.ref(ring)
            gc.collect()  # this also freezes what is left
            del ring
            gc.collect()
            assert gone() is not None
            monkeypatch.setattr(garbage, "FEW_OBJECTS", -2 * gc.get_freeze_count())
            while gone() is not None:
                await asyncio.sleep(0.01)
            assert known == 3

    asyncio.run(make())


def test_they_go_at_last_where_no_moment_is_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "CHECK_S", 0.01)
    monkeypatch.setattr(garbage, "CALM_S", 0.01)
    monkeypatch.setattr(garbage, "PATIENCE_S", 0.05)
    asked = itertools.count()

    async def make() -> None:
        with collecting(lambda: next(asked)):
            ring = Ring()
            gone = weakref.ref(ring)
            gc.collect()  # this also freezes what is left
            del ring
            monkeypatch.setattr(garbage, "FEW_OBJECTS", -2 * gc.get_freeze_count())
            while gone() is not None:
                await asyncio.sleep(0.01)
            assert next(asked) >= 2, "requests came in between"

    asyncio.run(make())


def test_python_collects_by_itself_again_once_it_is_stopped() -> None:
    before = gc.get_threshold(), list(gc.callbacks)

    async def make() -> None:
        with collecting():
            assert gc.get_threshold() == garbage.THRESHOLDS
        Garbage(asyncio.get_running_loop(), lambda: 0).stop()

    asyncio.run(make())
    assert (gc.get_threshold(), list(gc.callbacks)) == before


@pytest.mark.slow
def test_a_deleted_topic_leaves_nothing_to_collect(tmp_path: Path) -> None:
    def there() -> int:
        kinds = (TopicEntry, Partition, LogCore, LocalLog)
        return sum(type(each) in kinds for each in gc.get_objects())

    async def make(world: World) -> None:
        gc.collect()
        before = there()
        gc.disable()
        try:
            await world.broker.topics.create(NewTopic("t", 50, 1))
            assert there() == before + 151
            await world.broker.topics.delete("t")
            assert there() == before
        finally:
            gc.enable()

    in_world(tmp_path, make)


def test_many_collections_that_freeze_bring_the_check_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "CALM_S", 0.01)
    monkeypatch.setattr(garbage, "MOST_FREEZES", 5)

    async def make() -> None:
        with collecting():
            ring = Ring()
            gone = weakref.ref(ring)
            gc.collect()  # this also freezes what is left
            del ring
            monkeypatch.setattr(garbage, "FEW_OBJECTS", -2 * gc.get_freeze_count())
            kept = [[number] for number in range(MANY)]
            assert gone() is not None
            while gone() is not None:
                await asyncio.sleep(0.01)
        assert len(kept) == MANY

    asyncio.run(asyncio.wait_for(make(), 60))
