"""The simulated loop: nothing that it decides may depend on where objects lie in memory."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.sim.machines.loop import InlineExecutor, SimLoop


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop(Random(1))


async def nothing() -> None:
    """End at once."""


def test_a_set_of_tasks_has_the_order_in_which_they_were_made(loop: SimLoop) -> None:
    async def story() -> None:
        tasks = [asyncio.ensure_future(nothing()) for _ in range(200)]
        assert list({*tasks[::-1]}) == tasks
        assert len(set(tasks)) == 200
        done, _ = await asyncio.wait(tasks)
        assert list(done) == tasks

    loop.run_until_complete(story())


def test_a_set_of_futures_has_the_order_in_which_they_were_first_put_into_one(
    loop: SimLoop,
) -> None:
    futures = [loop.create_future() for _ in range(200)]
    hashes = [hash(each) for each in futures]
    assert hashes == sorted(hashes)
    assert list({*futures[::-1]}) == futures
    assert hashes == [hash(each) for each in futures], "they keep their places"


def test_an_executor_in_the_place_of_another_waits_for_none_of_its_calls(loop: SimLoop) -> None:
    """Most of these lie where the one before them was, as nothing else holds that."""

    async def story() -> None:
        for _ in range(50):
            executor: Any = InlineExecutor()
            await loop.run_in_executor(executor, lambda: None)
            loop.worker(executor)._free_at = 100.0
            del executor
        assert loop.time() < 1.0

    loop.run_until_complete(story())
