"""The simulated loop: its decisions do not depend on where objects are in memory."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import pytest

from tests.sim.machines.loop import HOLD_S, InlineExecutor, SimLoop


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
    """Most of these get the memory of the previous one, because nothing else keeps that alive."""

    async def story() -> None:
        for _ in range(50):
            executor: Any = InlineExecutor()
            await loop.run_in_executor(executor, lambda: None)
            loop.worker(executor)._free_at = 100.0
            del executor
        assert loop.time() < 1.0

    loop.run_until_complete(story())


@pytest.mark.slow
def test_a_step_that_computes_for_a_second_is_a_finding(loop: SimLoop) -> None:
    async def story() -> None:
        end = time.thread_time() + 1.1 * HOLD_S
        while time.thread_time() < end:
            pass

    loop.run_until_complete(story())
    [problem] = loop.problems
    assert problem.startswith("a loop was held for 1.")
    assert "story" in problem


@pytest.mark.slow
def test_a_step_that_waits_for_a_core_is_none_and_neither_is_a_thread(loop: SimLoop) -> None:
    def compute() -> None:
        end = time.thread_time() + 1.1 * HOLD_S
        while time.thread_time() < end:
            pass

    async def story() -> None:
        time.sleep(1.1 * HOLD_S)
        await loop.run_in_executor(None, compute)

    loop.run_until_complete(story())
    assert loop.problems == []
